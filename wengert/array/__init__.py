"""What a value is: dtypes and their promotion, shapes and axes."""
