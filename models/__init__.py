"""What a model is and where it lives."""
