"""Join orders and kept intermediates: counts of probes, what is measured from them, and the loop that plans anew."""
