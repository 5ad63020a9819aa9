// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rank 0 answers whoever asks as a rank of its job does, all at once, so that nobody who connects and says nothing
/// holds up the others.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <comm/monitor.hpp>

#include "rendezvous_message.hpp"

namespace fsdp::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Message = RendezvousMessage;

/// A file descriptor that does not block.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {
    if (open()) fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
  }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (open()) close(descriptor_);
  }
  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count() + 1, 0, 1000));
}

/// Whether a socket is ready by the deadline.
bool await(const Socket& socket, short events, Clock::time_point deadline) {
  while (Clock::now() < deadline) {
    pollfd one{.fd = socket.descriptor(), .events = events, .revents = 0};
    if (poll(&one, 1, milliseconds_until(deadline)) > 0) return true;
  }
  return false;
}

/// Sends or receives all of `bytes`; false where the other side is gone or the deadline comes first.
template <class Call>
bool transmit(const Socket& socket, std::span<std::byte> bytes, short events, Clock::time_point deadline, Call call) {
  while (!bytes.empty()) {
    const ssize_t moved = call(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (moved > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(moved));
    else if (moved == 0 || (errno != EAGAIN && errno != EINTR) || !await(socket, events, deadline))
      return false;
  }
  return true;
}
bool send_all(const Socket& socket, std::span<std::byte> bytes, Clock::time_point deadline) {
  return transmit(socket, bytes, POLLOUT, deadline, ::send);
}
bool receive_all(const Socket& socket, std::span<std::byte> bytes, Clock::time_point deadline) {
  return transmit(socket, bytes, POLLIN, deadline, ::recv);
}
template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

std::string place_of(const std::string& address, int port) { return message(address, ":", port); }

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  require<InputError>(error == 0, "rendezvous at ", place_of(address, port), ": the address is not known (",
                      gai_strerror(error), "); see MASTER_ADDR");
  return Addresses(found, freeaddrinfo);
}

/// One try.
Socket connect_to(const addrinfo* addresses, Clock::time_point deadline) {
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    if (!socket.open()) continue;
    if (connect(socket.descriptor(), at->ai_addr, at->ai_addrlen) != 0 &&
        (errno != EINPROGRESS || !await(socket, POLLOUT, deadline)))
      continue;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0) return socket;
  }
  return {};
}

void ask(const Meeting& meeting, const std::string& address, int port, std::span<std::byte> bytes) {
  const std::string where = place_of(address, port);
  const Clock::time_point deadline = Clock::now() + meeting.deadline;
  const Addresses addresses = resolve(address, port);
  Message question{.rank = meeting.rank,
                   .size = meeting.size,
                   .bytes = static_cast<std::int64_t>(bytes.size()),
                   .number = draw_number()};
  while (Clock::now() < deadline) {
    const Socket socket = connect_to(addresses.get(), deadline);
    Message answer;
    answer.mark = {};
    if (socket.open() && send_all(socket, bytes_of(question), deadline) &&
        receive_all(socket, bytes_of(answer), deadline)) {
      require_ours(question, answer, where);
      if (receive_all(socket, bytes, deadline)) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rank 0 may not listen yet
  }
  throw InputError(message("rendezvous at ", where, ": rank ", meeting.rank, " got no answer from rank 0 within ",
                           in_seconds(meeting.deadline),
                           "; does rank 0 run there, and may this machine connect to it?"));
}

Socket listen_at(int port) {
  Socket listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_addr = in6addr_any;
  any6.sin6_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_addr.s_addr = htonl(INADDR_ANY);
  any4.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool both = listener.open();  // a machine without IPv6 has no such sockets
  if (!both) listener = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  const int off = 0;
  setsockopt(listener.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (both) setsockopt(listener.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  const int bound = both ? bind(listener.descriptor(), reinterpret_cast<sockaddr*>(&any6), sizeof any6)
                         : bind(listener.descriptor(), reinterpret_cast<sockaddr*>(&any4), sizeof any4);
  require<InputError>(bound == 0 && listen(listener.descriptor(), SOMAXCONN) == 0,
                      "rendezvous: rank 0 cannot listen at ", "port ", port, " (", std::strerror(errno),
                      "); choose another MASTER_PORT");
  return listener;
}

/// Somebody who connected, and what was heard so far.
struct Guest {
  Socket socket;
  Message question;
  std::size_t heard = 0;
};

/// Hears more of a guest; false where there is no more to come.
bool hear(Guest& guest) {
  const auto rest = bytes_of(guest.question).subspan(guest.heard);
  const ssize_t heard = recv(guest.socket.descriptor(), rest.data(), rest.size(), 0);
  if (heard > 0) guest.heard += static_cast<std::size_t>(heard);
  return heard > 0 || (heard < 0 && (errno == EAGAIN || errno == EINTR));
}

/// Answers a complete question; says whether one more of the job's ranks has what it came for.
bool answer(const Meeting& meeting, Guest& guest, const std::vector<bool>& came, std::span<std::byte> bytes,
            Clock::time_point deadline) {
  const Message& question = guest.question;
  if (question.mark != rendezvous_mark) return false;
  Message reply{
      .rank = 0, .size = meeting.size, .bytes = static_cast<std::int64_t>(bytes.size()), .number = question.number};
  const bool ours =
      question.size == reply.size && question.bytes == reply.bytes && question.rank > 0 && question.rank < meeting.size;
  reply.refused = ours && came[static_cast<std::size_t>(question.rank)] ? 1 : 0;
  return send_all(guest.socket, bytes_of(reply), deadline) && ours && reply.refused == 0 &&
         send_all(guest.socket, bytes, deadline);
}

void serve(const Meeting& meeting, int port, std::span<std::byte> bytes) {
  const Clock::time_point deadline = Clock::now() + meeting.deadline;
  const Socket listener = listen_at(port);
  std::vector<bool> came(static_cast<std::size_t>(meeting.size));
  std::vector<Guest> guests;
  for (int missing = meeting.size - 1; missing > 0;) {
    require<InputError>(Clock::now() < deadline, "rendezvous at port ", port, ": ", missing_ranks(came),
                        " did not come within ", in_seconds(meeting.deadline), "; is WORLD_SIZE ", meeting.size,
                        ", and do all ranks know this machine as MASTER_ADDR?");
    std::vector<pollfd> ready{{.fd = listener.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Guest& guest : guests)
      ready.push_back({.fd = guest.socket.descriptor(), .events = POLLIN, .revents = 0});
    poll(ready.data(), ready.size(), milliseconds_until(deadline));
    for (std::size_t i = guests.size(); i-- > 0;) {
      Guest& guest = guests[i];
      if (ready[i + 1].revents == 0) continue;
      const bool more = hear(guest);
      if (more && guest.heard < sizeof(Message)) continue;
      if (guest.heard == sizeof(Message) && answer(meeting, guest, came, bytes, deadline)) {
        came[static_cast<std::size_t>(guest.question.rank)] = true;
        --missing;
      }
      guests.erase(guests.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (Socket guest(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC)); guest.open())
      guests.push_back({.socket = std::move(guest), .question = {}});
  }
}

}  // namespace

void meet_over_tcp(const Meeting& meeting, const std::string& address, int port, std::span<std::byte> bytes) {
  if (meeting.size == 1) return;
  if (meeting.rank == 0)
    serve(meeting, port, bytes);
  else
    ask(meeting, address, port, bytes);
}

}  // namespace fsdp::comm
