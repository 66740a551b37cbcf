"""The outside world, simulated: upstream, provider and receiver of callbacks, on a wire or without one."""
