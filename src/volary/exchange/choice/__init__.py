"""Which codec each layer's gradient travels by, and what that is expected to cost."""
