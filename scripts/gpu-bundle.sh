#!/usr/bin/env bash
# Packs everything that runs into one folder, for a machine with a GPU and no Rust: the tests, examples and benchmarks of
# the whole workspace, in release mode, and the data they read. There, `./run-tests.sh [PATTERN]` runs the tests.
#
# usage: scripts/gpu-bundle.sh [OUT_DIR]      (default: gpu-bundle)
set -euo pipefail

case "${1:-}" in -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
out=$(realpath -m "${1:-gpu-bundle}")
cd "$(dirname "$0")/.."

LIMIT_MIB=64
messages=$(mktemp)
trap 'rm -f "$messages"' EXIT
cargo test --workspace --release --no-run --message-format=json >"$messages"
cargo bench --workspace --no-run --bench '*' --message-format=json >>"$messages"

# Cargo's file names carry hashes; these say what a program is.
rm -rf "$out"
mkdir -p "$out/tests" "$out/examples" "$out/benches"
python3 - "$messages" <<'PYTHON' | while IFS=$'\t' read -r name file; do
import json, os, sys

for line in open(sys.argv[1]):
    message = json.loads(line)
    if message["reason"] != "compiler-artifact" or not message["executable"]:
        continue
    target, test = message["target"], message["profile"]["test"]
    crate = os.path.basename(os.path.dirname(message["manifest_path"]))
    crate = "kiln" if os.path.samefile(os.path.dirname(message["manifest_path"]), ".") else f"kiln-{crate}"
    kind = target["kind"][0]
    if kind == "example" and not test:
        name = f"examples/{target['name']}" if crate == "kiln" else f"examples/{crate}-{target['name']}"
    elif kind == "bench":
        name = f"benches/{target['name']}" if crate == "kiln" else f"benches/{crate}-{target['name']}"
    elif kind == "test":
        name = f"tests/{crate}-{target['name']}"
    elif test and kind in ("lib", "rlib", "proc-macro"):
        name = f"tests/{crate}-unit"
    else:
        continue
    print(f"{name}\t{message['executable']}")
PYTHON
    strip -o "$out/$name" "$file"
done

mkdir -p "$out/examples/data"
cp examples/data/* "$out/examples/data/"
cp LICENSE-MIT LICENSE-APACHE "$out/"

cat >"$out/run-tests.sh" <<'RUN'
#!/usr/bin/env bash
# Runs every test program of this folder, or those whose name contains PATTERN: a line each, the full output of those that
# failed, and a summary. Exits with 1 if any failed. Output is kept in $LOGS (default: logs).
#
# usage: ./run-tests.sh [PATTERN]
set -uo pipefail
logs=$(realpath -m "${LOGS:-$(dirname "$0")/logs}")
cd "$(dirname "$0")" && mkdir -p "$logs" || exit 1

passed=0 failed=()
for program in tests/*"${1:-}"*; do
    [ -x "$program" ] || continue
    name=$(basename "$program") log="$logs/$(basename "$program").txt" start=$SECONDS status=0
    "./$program" >"$log" 2>&1 </dev/null || status=$?
    summary=$(grep '^test result' "$log" | tail -1)
    printf '%-4s %-40s %4d s  %s\n' "$([ "$status" = 0 ] && echo ok || echo FAIL)" "$name" $((SECONDS - start)) \
        "${summary:-exit code $status}"
    if [ "$status" = 0 ]; then passed=$((passed + 1)); else failed+=("$name"); fi
done
for name in "${failed[@]+"${failed[@]}"}"; do
    printf '\n---- %s ----\n' "$name"
    tail -n 200 "$logs/$name.txt"
done
printf '\n%d test programs passed, %d failed%s\n' "$passed" "${#failed[@]}" "${failed[*]:+: ${failed[*]}}"
[ "${#failed[@]}" = 0 ] && [ "$passed" -gt 0 ]
RUN
chmod +x "$out/run-tests.sh"

mib=$(($(du -sk "$out" | cut -f1) / 1024 + 1))
echo "$out: $(find "$out/tests" -type f | wc -l) test programs, $(find "$out/examples" -maxdepth 1 -type f | wc -l) examples," \
    "$(find "$out/benches" -type f | wc -l) benchmarks, $mib MiB"
[ "$mib" -le "$LIMIT_MIB" ] || echo "note: that is more than $LIMIT_MIB MiB"
