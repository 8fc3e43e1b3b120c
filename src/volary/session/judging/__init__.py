"""What fits one kind of setting, a file each: `volary.session.fitting` asks them."""
