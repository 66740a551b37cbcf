"""Where tickets wait, and how the same ticket is recognised."""
