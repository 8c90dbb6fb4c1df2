# Registers, shared memory and theoretical occupancy of each kernel: the table that `make occupancy` prints. In:
# kernels_launch.c (threads and dynamic shared memory), then what `ptxas -v` says. Occupancy by the programming
# guide's rule: the warps of as many blocks as fit into a multiprocessor, of those that it holds; registers are
# given out 256 at a time to a warp, shared memory 128 bytes at a time to a block, with 1 KiB of the system's own.
# Rows have the order of kernels_launch.c, which is that of kernels.cu; of a block of one thread occupancy says nothing.
BEGIN { printf "%-48s %6s %7s %9s %7s %8s %9s\n", "kernel", "arch", "threads", "registers", "shared", "spilled", "occupancy" }

# {"scale_512", {2, 1, 1}, 256, 0},
/^  \{"/ {
  split($0, part, "\"")
  sub(/^, \{[^}]*\}, /, "", part[3])
  split(part[3], number, /[,}]/)
  order[n_kernels++] = part[2]
  threads[part[2]] = number[1] + 0
  dynamic[part[2]] = number[2] + 0
}

function ceil(a, b) { return int((a + b - 1) / b) }
function least(a, b) { return a < b ? a : b }

# Of compute capability 8.0, 9.0, 10.0 and, with fewer warps, 8.6, 8.9 and 12.
function max_warps(arch) { return arch ~ /sm_(86|87|89|12)/ ? 48 : 64 }
function max_blocks(arch) { return arch ~ /sm_(86|87)/ ? 16 : arch ~ /sm_(89|12)/ ? 24 : 32 }
function shared_bytes(arch) { return arch ~ /sm_(86|89|12)/ ? 102400 : arch ~ /sm_8/ ? 167936 : 233472 }

function occupancy(arch, n, registers, shared,   warps, blocks) {
  warps = ceil(n, 32)
  blocks = least(max_blocks(arch), int(max_warps(arch) / warps))
  if (registers) blocks = least(blocks, int(int(65536 / (ceil(registers * 32, 256) * 256)) / warps))
  blocks = least(blocks, int(shared_bytes(arch) / (ceil(shared + 1024, 128) * 128)))
  return 100 * blocks * warps / max_warps(arch)
}

/Compiling entry function/ { split($0, part, "'"); name = part[2]; arch = part[4]; spilled = 0 }
/spill stores/ { for (i = 2; i < NF; i++) if ($(i + 1) == "bytes" && $(i + 2) == "spill") spilled += $i }
/Used [0-9]+ registers/ {
  registers = shared = 0
  for (i = 2; i <= NF; i++) {
    if ($i ~ /^registers/) registers = $(i - 1)
    if ($i ~ /^smem/) shared = $(i - 2)
  }
  if (!(name in threads)) next
  shared += dynamic[name]
  share = threads[name] == 1 ? "-" : sprintf("%.0f%%", occupancy(arch, threads[name], registers, shared))
  rows[name] = rows[name] sprintf("%-48s %6s %7d %9d %7d %8d %9s\n", name, arch, threads[name], registers, shared, spilled, share)
}

END { for (k = 0; k < n_kernels; k++) printf "%s", rows[order[k]] }
