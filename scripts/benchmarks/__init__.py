"""Benches: one module each, with `main(argv) -> int`. `scripts/bench <name>` runs one."""
