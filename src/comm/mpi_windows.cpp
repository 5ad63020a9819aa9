// SPDX-License-Identifier: Apache-2.0
#include "mpi_windows.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <utility>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::comm {
namespace {

constexpr std::int64_t page = 4096;
/// The same threshold as in src/fsdp/device/cpu/memory.cpp.
constexpr std::int64_t huge_page_threshold = std::int64_t{32} << 20;

/// The identity of a window, stored in the page after its bytes.
struct Stamp {
  std::array<std::uint64_t, 2>
      nonce{};  ///< the process's nonce; guards against a descriptor that is reused for another file
  std::uint64_t number = 0;
  std::atomic<std::uint32_t> released = 0;  ///< set when the owner frees the window: peers then unmap it
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Returns the stamp of a window, which only its owner may change.
Stamp* stamp_of(const std::byte* data, std::int64_t bytes) {
  return reinterpret_cast<Stamp*>(const_cast<std::byte*>(data) + round_up(bytes, page));
}
std::size_t mapped_bytes(std::int64_t bytes) { return static_cast<std::size_t>(round_up(bytes, page) + page); }

/// The information that a process sends to the others, so that they can try to read its memory.
struct Handshake {
  std::array<char, 36> machine{};
  std::array<std::uint64_t, 2> nonce{};  ///< also stored in the file
  std::int64_t pid = 0;                  ///< 0 if the process has no windows
  std::int64_t file = -1;
};

/// Returns an id that all processes on one running kernel have in common.
std::array<char, 36> this_machine() {
  std::array<char, 36> id{};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), id.size());
  return id;
}

/// Returns whether a process has ended. A zombie has ended too, although its folder in /proc still exists.
bool has_ended(std::int64_t pid) {
  std::ifstream stat(message("/proc/", pid, "/stat"));
  std::string text;
  if (!std::getline(stat, text)) return true;
  const std::size_t name_end = text.rfind(')');  // the state is the word after the name
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         (text[name_end + 2] == 'Z' || text[name_end + 2] == 'X');
}

}  // namespace

std::string unreadable(int rank, std::int64_t pid, bool freed, std::string_view refusal) {
  if (has_ended(pid)) return message("rank ", rank, " is gone: its process ", pid, " has ended");
  if (freed) return message("rank ", rank, " has freed the memory that was to be read: it has failed or left");
  return message("cannot read the memory of rank ", rank, " (", refusal, "); switch shared windows off");
}

Windows::Windows(Messages& messages, bool enabled, Messages::Deadline deadline)
    : rank_(messages.rank()), peers_(static_cast<std::size_t>(messages.size())) {
  const FileDescriptor file(enabled && messages.size() > 1 ? memfd_create("tessera-greeting", MFD_CLOEXEC) : -1);
  Handshake mine;
  if (file.open()) {
    std::random_device random;
    for (std::uint64_t& word : nonce_) word = std::uint64_t{random()} << 32 | random() | 1;
    if (write(file.get(), nonce_.data(), sizeof nonce_) == static_cast<ssize_t>(sizeof nonce_))
      mine = {.machine = this_machine(), .nonce = nonce_, .pid = getpid(), .file = file.get()};
  }
  std::vector<Handshake> greetings(peers_.size());
  messages.exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(greetings)), deadline);

  // Containers may hide processes of one machine from each other, and the system may forbid reading, so each process
  // tries.
  std::vector<char> reads(peers_.size());
  for (std::size_t process = 0; process < peers_.size(); ++process) {
    const Handshake& theirs = greetings[process];
    peers_[process] = {.nonce = theirs.nonce, .pid = theirs.pid};
    if (static_cast<int>(process) == rank_ || theirs.pid == 0 || mine.pid == 0 || theirs.machine != mine.machine)
      continue;
    const std::string path = path_of(static_cast<int>(process), theirs.file);
    const FileDescriptor opened(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    Nonce found{};
    reads[process] = opened.open() &&
                     pread(opened.get(), found.data(), sizeof found, 0) == static_cast<ssize_t>(sizeof found) &&
                     found == theirs.nonce;
  }
  std::vector<char> read_by(peers_.size());
  messages.exchange(std::as_bytes(std::span(reads)), std::as_writable_bytes(std::span(read_by)), deadline);
  for (std::size_t process = 0; process < peers_.size(); ++process)
    peers_[process].shares = reads[process] != 0 && read_by[process] != 0;
}

Windows::~Windows() {
  for (const Mapped& mapped : mapped_) munmap(const_cast<std::byte*>(mapped.data), mapped_bytes(mapped.bytes));
}

std::shared_ptr<std::byte> Windows::allocate(const std::shared_ptr<Windows>& windows, std::int64_t bytes) {
  const auto refused = [bytes](const char* call) {
    return MemoryError(message("the system gave no window of ", bytes, " bytes (", call, ": ", std::strerror(errno),
                               "); lower the model or the batch, or switch shared windows off"));
  };
  const std::size_t size = mapped_bytes(bytes);
  FileDescriptor file(memfd_create("tessera-window", MFD_CLOEXEC));
  if (!file.open()) throw refused("memfd_create");
  if (ftruncate(file.get(), static_cast<off_t>(size)) != 0) throw refused("ftruncate");
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) throw refused("mmap");
  auto* const data = static_cast<std::byte*>(address);
  if (bytes >= huge_page_threshold) madvise(address, size, MADV_HUGEPAGE);  // only a hint: failure is harmless
  Stamp* const stamp = new (stamp_of(data, bytes)) Stamp;
  stamp->nonce = windows->nonce_;
  stamp->number = ++windows->made_;
  windows->own_.push_back({.number = stamp->number, .file = std::move(file), .data = data, .bytes = bytes});
  return {data, [windows](std::byte* given_back) { windows->release(given_back); }};
}

void Windows::release(const std::byte* data) noexcept {
  const auto own = std::find_if(own_.begin(), own_.end(), [data](const Own& window) { return window.data == data; });
  stamp_of(own->data, own->bytes)->released.store(1);
  munmap(own->data, mapped_bytes(own->bytes));
  own_.erase(own);
  forget_released();
}

Place Windows::find(const std::byte* data, std::int64_t bytes) const {
  for (const Own& window : own_)
    if (data >= window.data && data + bytes <= window.data + window.bytes)
      return {.window = window.number, .file = window.file.get(), .bytes = window.bytes, .offset = data - window.data};
  return {};
}

const std::byte* Windows::map(int process, const Place& place) {
  for (const Mapped& mapped : mapped_)
    if (mapped.process == process && mapped.number == place.window) return mapped.data + place.offset;

  const std::string path = path_of(process, place.file);
  const auto refused = [&](const char* call, bool freed) {
    const std::string refusal = message(call, " ", path, ": ", std::strerror(errno));
    return CollectiveError(unreadable(process, peers_[static_cast<std::size_t>(process)].pid, freed, refusal));
  };
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) throw refused("open", errno == ENOENT);
  const auto size = static_cast<off_t>(mapped_bytes(place.bytes));
  if (lseek(file.get(), 0, SEEK_END) != size) throw refused("open", true);  // the descriptor now refers to another file
  void* const address = mmap(nullptr, mapped_bytes(place.bytes), PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) throw refused("mmap", false);
  const auto* const data = static_cast<const std::byte*>(address);
  const Stamp& stamp = *stamp_of(data, place.bytes);
  if (stamp.number != place.window || stamp.nonce != peers_[static_cast<std::size_t>(process)].nonce) {
    munmap(address, mapped_bytes(place.bytes));
    throw refused("open", true);  // the descriptor now refers to another file
  }
  if (place.bytes >= huge_page_threshold) madvise(address, mapped_bytes(place.bytes), MADV_HUGEPAGE);
  mapped_.push_back({.process = process, .number = place.window, .data = data, .bytes = place.bytes});
  return data + place.offset;
}

void Windows::forget_released() {
  std::erase_if(mapped_, [](const Mapped& mapped) {
    if (stamp_of(mapped.data, mapped.bytes)->released.load() == 0) return false;
    munmap(const_cast<std::byte*>(mapped.data), mapped_bytes(mapped.bytes));
    return true;
  });
}

std::string Windows::path_of(int process, std::int64_t file) const {
  return message("/proc/", peers_[static_cast<std::size_t>(process)].pid, "/fd/", file);
}

}  // namespace fsdp::comm
