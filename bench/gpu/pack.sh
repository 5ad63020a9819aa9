# SPDX-License-Identifier: Apache-2.0
# For bench/gpu.sh pack: builds without MPI, and makes one archive of what `card` needs on a machine with a GPU.

most_bytes=${MOST_BYTES:-$((44 << 20))}
from_machine='^lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|cupti)[.-]' # too large, or the driver's
from_system='^(ld-linux|lib(c|m|dl|rt|util|pthread|stdc\+\+|gcc_s)\.)'           # every image has them

pack() {
  local build programs=(tessera tests_cuda tests_cuda_stacks bench_operations bench_step bench_matmuls bench_killed)
  local program path name place archive bytes
  if ! PATH=$PATH:/usr/local/cuda/bin command -v "${CUDACXX:-nvcc}" >/dev/null; then
    echo "bench/gpu.sh pack: ${CUDACXX:-nvcc} is not in PATH or /usr/local/cuda/bin; pack where CUDA's compiler, cuBLASLt and NCCL are" >&2
    exit 2
  fi
  build=$(realpath -m "${BUILD:-build/pack}")
  mkdir -p "$build"
  place=$build/tessera-gpu archive=$build/tessera-gpu.tar.xz
  rm -rf "$place" "$archive"
  if [ -z "${CUDNN_FRONTEND_ROOT:-}" ] && python3 -m pip install -q --no-deps --upgrade --target "$build/frontend" nvidia-cudnn-frontend; then
    export CUDNN_FRONTEND_ROOT=$build/frontend
  fi
  cmake --preset release -B "$build" -DTESSERA_ENABLE_CUDA=ON -DTESSERA_ENABLE_NCCL=ON -DTESSERA_ENABLE_MPI=OFF \
    -DTESSERA_BUILD_EXAMPLES=OFF -DTESSERA_PRECISIONS=bf16 -DTESSERA_CUDA_ARCHITECTURES="$architectures" -DCMAKE_SKIP_RPATH=ON
  grep -qs 'CUDNN_FRONTEND_INCLUDE_DIR.*NOTFOUND' "$build/CMakeCache.txt" && echo "attention is ours: cudnn-frontend's headers are not found"
  cmake --build "$build" -j "${JOBS:-$(nproc)}" --target tessera_program "${programs[@]:1}" tessera_timeline

  mkdir -p "$place/bin" "$place/lib" "$place/bench"
  : >"$place/found"
  for program in "${programs[@]}" libtessera_timeline.so; do
    path=$(find "$build" -name "$program" -type f -not -path '*/tessera-gpu/*' -print -quit)
    strip -o "$place/bin/$program" "$path"
    while read -r name path; do
      if [[ $name =~ $from_machine ]]; then
        echo "$name" >>"$place/found"
      elif ! [[ $name =~ $from_system ]]; then
        cp -Ln "$path" "$place/lib/$name"
      fi
    done < <(ldd "$place/bin/$program" | sed -nE 's/^\s*(\S+) => (\/\S+) .*/\1 \2/p')
  done
  sort -u "$place/found" | sed '/^libcuda\./d' >"$place/libraries"
  rm "$place/found"
  git describe --always --dirty >"$place/revision"
  cp bench/gpu.sh "$place/bench"
  mkdir "$place/bench/gpu"
  cp bench/gpu/*.sh bench/gpu/torch_rows.py "$place/bench/gpu"

  tar -C "$build" -c tessera-gpu | xz -T0 --lzma2=preset=4,dict=64MiB >"$archive"
  bytes=$(stat -c %s "$archive")
  du -ab "$place/bin" "$place/lib"
  if [ "$bytes" -gt "$most_bytes" ]; then
    echo "bench/gpu.sh pack: $archive has $bytes bytes, $((bytes - most_bytes)) more than it may have; the largest file is $(du -b "$place"/{bin,lib}/* 2>/dev/null | sort -nr | sed -n '1s/.*\t//p')" >&2
    exit 1
  fi
  echo "$archive: $bytes bytes; needs of the machine: the driver, $(paste -sd ' ' "$place/libraries"), and glibc $(
    objdump -T "$place"/bin/* "$place"/lib/* | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -n 1 | cut -d _ -f 2) or newer"
}
