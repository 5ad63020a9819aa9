// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/peer_watch.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <tessera/comm/poll.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp::comm {
namespace {

/// After 90 s without an answer from its machine a socket ends as well. Child processes do not keep it open.
void prepare(int socket) {
  constexpr int options[][3] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                                {IPPROTO_TCP, TCP_KEEPIDLE, 30},
                                {IPPROTO_TCP, TCP_KEEPINTVL, 10},
                                {IPPROTO_TCP, TCP_KEEPCNT, 6}};
  for (const auto& [level, name, value] : options) ::setsockopt(socket, level, name, &value, sizeof value);
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
}

template <class Text>
Text failure_text(int rank, std::string_view reason) {
  Text text{};
  sentence(message("rank ", rank, " failed: ", reason), text.size() - 1).copy(text.data(), text.size() - 1);
  return text;
}

}  // namespace

PeerWatch::PeerWatch(int rank, std::vector<Peer> peers)
    : rank_(rank), peers_(std::move(peers)), open_(static_cast<int>(peers_.size())) {
  for (const Peer& peer : peers_) prepare(peer.socket);
  thread_ = std::thread([this] { listen(); });
}

PeerWatch::~PeerWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stops_.notify_all();
  for (const Peer& peer : peers_) ::shutdown(peer.socket, SHUT_RDWR);  // also wakes the thread
  // The function of when_blocked may release the last owner of this object.
  thread_.get_id() == std::this_thread::get_id() ? thread_.detach() : thread_.join();
  for (const Peer& peer : peers_) ::close(peer.socket);
}

std::string PeerWatch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void PeerWatch::when_blocked(std::function<void()> give_up) {
  const std::lock_guard lock(mutex_);
  give_up_ = std::move(give_up);
}

void PeerWatch::report(std::string_view reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true) || !failure_.empty()) return;
  }
  send(failure_text<Text>(rank_, reason));
}

void PeerWatch::leave(std::chrono::milliseconds limit) noexcept {
  if (rank_ == 0) poll_until(deadline_after(Clock::now(), limit), [this] { return open_ == 0 || failed_; });
  send({});
}

void PeerWatch::send(const Text& text) noexcept {
  for (const Peer& peer : peers_)  // an error is ignored: that rank has ended, which its socket reports
    ::send(peer.socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void PeerWatch::listen() {
  std::vector<pollfd> waits(peers_.size());
  while (open_ > 0 && !failed_) {
    for (std::size_t i = 0; i < peers_.size(); ++i)
      waits[i] = {.fd = peers_[i].open ? peers_[i].socket : -1, .events = POLLIN, .revents = 0};
    ::poll(waits.data(), waits.size(), -1);
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (waits[i].revents != 0) read(peers_[i]);
  }
  std::unique_lock lock(mutex_);
  if (!failed_ || stops_.wait_for(lock, std::chrono::seconds(2), [this] { return stopped_; }) || !give_up_) return;
  const std::function<void()> give_up = give_up_;
  lock.unlock();  // the function takes locks under which others ask for the failure
  give_up();
}

void PeerWatch::read(Peer& peer) {
  const auto got =
      ::recv(peer.socket, peer.text.data() + peer.received, peer.text.size() - peer.received, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0 && (peer.received += static_cast<std::size_t>(got)) < peer.text.size()) return;
  peer.open = false;
  if (got <= 0) hear(failure_text<Text>(peer.rank, "its process ended without an error message"));
  if (got > 0 && peer.text[0] != '\0') hear(peer.text);
  --open_;
}

void PeerWatch::hear(const Text& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || !failure_.empty()) return;
    failure_.assign(failure.data(), ::strnlen(failure.data(), failure.size()));
  }
  if (rank_ == 0) send(failure);  // before this rank's host can end the process
  failed_ = true;
}

}  // namespace fsdp::comm
