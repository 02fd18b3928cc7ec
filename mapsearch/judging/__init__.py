"""Cases from practice: a file of what somebody ran, on what and how, and the verdict that the cost model gives it."""
