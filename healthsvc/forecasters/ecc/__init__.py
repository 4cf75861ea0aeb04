"""Parts of ecc_growth: what correctable errors tell, and what the spare rows and past episodes do."""
