"""The same work on reactifact and on what people use today, side by side (`scripts/bench --peers`).

Each program in `programs/` runs in a virtual environment of its own and imports one library. All do the
same: an order comes in; a receipt and an intent to notify are stored durably; the notification is delivered
(a function that counts); the delivery is stored durably. A program is told over its standard input how many
orders to take, and answers with one time per order.
"""
