"""Key group -> slot (SASPAR): the statistics of what is sent, and whether another assignment is worth a switch."""
