"""How good forecasts of carbon intensity are on recorded zones."""
