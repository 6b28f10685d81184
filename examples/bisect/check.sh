# For `git bisect run`: exits 0 where the total of the account is that of its entries, as `balances` does.
git grep -h '[0-9]' BISECT_HEAD -- artifacts/example.Account | awk '/total/ {total = $2; next} {sum += $1} END {exit sum != total}'
