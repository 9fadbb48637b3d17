# Of machine code as cuobjdump prints it: for each kernel the instructions of the loop that has most HGMMA for its size, one a
# line. A loop goes from where a branch goes back to up to that branch: also what is done seldom lies in it, so that the
# smallest one need not be the one over the steps. A branch without a condition ends no loop: it is the way back from a wait that
# ptxas put behind the kernel's end. Kernels whose name has `except` are left out; of those
# whose name has `one`, the first R2UR is.
function print_loop(i, left) {
    left = may_have_one ? 1 : 0
    for (i = first; size && i <= last; ++i)
        if (operation[i] !~ /^R2UR/ || --left < 0) print operation[i]
}
function close_kernel(i, j, hgmma, n) {
    for (i = 0; i < count; ++i) {
        if (!(i in target) || !(target[i] in at) || at[target[i]] > i) continue
        n = i - at[target[i]] + 1
        hgmma = 0
        for (j = at[target[i]]; j < i; ++j) hgmma += operation[j] ~ /^HGMMA/
        if (hgmma * size > most * n || (hgmma && !size)) { size = n; most = hgmma; first = at[target[i]]; last = i }
    }
    if (!left_out) print_loop()
    count = size = most = 0
    delete at; delete target; delete operation
}
/Function :/ { close_kernel(); left_out = except && $0 ~ except; may_have_one = one && $0 ~ one }
/^ *\/\*[0-9a-f]+\*\/ / {
    address = $1
    gsub(/[\/*]/, "", address)
    sub(/^0+/, "", address)
    name = $2 ~ /^@/ ? $3 : $2
    at[address] = count
    operation[count] = name
    if (name ~ /^BRA/ && $2 ~ /^@/ && match($0, /0x[0-9a-f]+/)) target[count] = substr($0, RSTART + 2, RLENGTH - 2)
    ++count
}
END { close_kernel() }
