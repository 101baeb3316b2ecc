"""What has become of a binding's latest request, in one word."""

WAITING, SCHEDULED, REFUSED = "waiting", "scheduled", "refused"
