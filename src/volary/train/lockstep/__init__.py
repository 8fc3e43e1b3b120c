"""Workers that keep step: what is due, what a contribution is learnt from, and what they agree on in each step."""
