# Sourced by demo.sh and test.sh: installs what is missing, with apt where there is apt, and says what to install
# elsewhere.
#   need 'a command that succeeds when it is there' package...
#   install_missing
missing=()
need() {
  local check=$1
  shift
  eval "$check" >/dev/null 2>&1 || missing+=("$@")
}

install_missing() {
  [ ${#missing[@]} -eq 0 ] && return 0
  local as_root=""
  [ "$(id -u)" -eq 0 ] || as_root=sudo
  if ! command -v apt-get >/dev/null; then
    echo "missing: ${missing[*]} (Debian's names); please install them" >&2
    return 1
  fi
  echo "installing ${missing[*]}"
  $as_root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  missing=()
}

need_to_build() {
  need 'command -v cc' gcc libc6-dev
  need 'command -v cmake' cmake
  need 'command -v ninja' ninja-build
  need 'command -v flex' flex
  need 'command -v bison' bison
  need 'command -v python3' python3
  need 'test -e /usr/include/xxhash.h' libxxhash-dev
  need 'test -e /usr/include/sodium.h' libsodium-dev
  need '[ -n "$(ls /usr/lib/*/libopenblas.so /usr/lib*/libopenblas.so /usr/local/lib/libopenblas.so 2>/dev/null)" ]' \
    libopenblas-dev
}
