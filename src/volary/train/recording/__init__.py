"""What a step cost, counted where it arises."""
