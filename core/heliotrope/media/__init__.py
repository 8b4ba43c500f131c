"""What requests hold beside text, as far as it can be told without decoding or fetching anything."""
