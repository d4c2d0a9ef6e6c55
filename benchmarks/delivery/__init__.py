"""What is sent, lost and sent twice when deliveries are killed."""
