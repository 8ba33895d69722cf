"""A fleet under load of which at random moments something dies or stands still, and what its books must say after."""
