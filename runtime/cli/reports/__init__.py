"""What commands show: the same facts as tables for people and as documents for machines."""
