// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rendezvous over TCP. Rank 0 serves all ranks concurrently: a peer that connects but sends nothing does not delay the
/// others.
#include <tessera/comm/rendezvous.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

// Only one thread uses an io_context here, so no fences are needed; ThreadSanitizer does not support them.
#define BOOST_ASIO_DISABLE_FENCED_BLOCK

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/poll.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::array<char, 16> rendezvous_mark = {'t', 'e', 's', 's', 'e', 'r', 'a', ' ',
                                                  'm', 'e', 'e', 't', 's', ' ', '1', '\n'};

/// A message of a rendezvous: a rank's request, and rank 0's answer; rank 0's bytes follow the answer unless it is a
/// refusal. It is sent without conversion: both sides must have the same byte order.
struct Message {
  std::array<char, 16> mark = rendezvous_mark;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int64_t bytes = 0;
  std::uint64_t number = 0;  ///< random number drawn by the requesting rank; the answer repeats it
  std::int64_t refused = 0;  ///< in an answer: 1 if another process has already connected as this rank
};

template <class T>
asio::mutable_buffer buffer_of(T& value) {
  return asio::buffer(&value, sizeof value);
}
asio::mutable_buffer buffer_of(std::span<std::byte> bytes) { return asio::buffer(bytes.data(), bytes.size()); }

/// Returns a list such as "rank 1, rank 3" of the ranks from 1 on whose flag in `came` is not set.
std::string missing_ranks(const std::vector<bool>& came) {
  std::string text;
  for (std::size_t rank = 1; rank < came.size(); ++rank)
    if (!came[rank]) text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  return text;
}

Message request_message(const Meeting& meeting, std::span<std::byte> bytes, std::uint64_t number) {
  return {
      .rank = meeting.rank, .size = meeting.size, .bytes = static_cast<std::int64_t>(bytes.size()), .number = number};
}

/// Runs the asynchronous operation `start(done)`. Returns whether it ended without an error by the deadline.
template <class Start>
bool completes(asio::io_context& io, Clock::time_point deadline, const Start& start) {
  bool succeeded = false;
  start([&](const error_code& error, const auto&...) { succeeded = !error; });
  io.restart();
  io.run_until(deadline);
  return succeeded;
}

/// Throws InputError unless `answer` is rank 0's positive answer to `asked`.
void require_same_job(const Message& asked, const Message& answer, const std::string& where) {
  require<InputError>(answer.mark == rendezvous_mark && answer.number == asked.number, "rendezvous at ", where,
                      ": what answers is not rank 0 of this job; is the address another program's?");
  require<InputError>(answer.size == asked.size && answer.bytes == asked.bytes, "rendezvous at ", where, ": rank ",
                      asked.rank, " expects ", asked.size, " ranks and ", asked.bytes, " bytes, rank 0 ", answer.size,
                      " ranks and ", answer.bytes, " bytes; all ranks must be of the same job and program");
  require<InputError>(answer.refused == 0, "rendezvous at ", where, ": somebody else is rank ", asked.rank,
                      " already; every process needs a rank of its own");
}

void ask(const Meeting& meeting, const std::string& address, int port, std::span<std::byte> bytes) {
  const std::string where = message(address, ":", port);
  const Clock::time_point deadline = deadline_after(Clock::now(), meeting.deadline);
  asio::io_context io;
  error_code unknown;
  const auto endpoints = tcp::resolver(io).resolve(address, std::to_string(port), unknown);
  require<InputError>(!unknown, "rendezvous at ", where, ": the address is not known (", unknown.message(),
                      "); see MASTER_ADDR");
  std::random_device random;
  Message question = request_message(meeting, bytes, std::uint64_t{random()} << 32 | random());
  while (Clock::now() < deadline) {
    asio::io_context attempt;
    tcp::socket socket(attempt);
    const auto does = [&](const auto& start) { return completes(attempt, deadline, start); };
    Message answer;
    answer.mark = {};
    if (does([&](auto done) { asio::async_connect(socket, endpoints, done); }) &&
        does([&](auto done) { asio::async_write(socket, buffer_of(question), done); }) &&
        does([&](auto done) { asio::async_read(socket, buffer_of(answer), done); })) {
      require_same_job(question, answer, where);
      if (does([&](auto done) { asio::async_read(socket, buffer_of(bytes), done); })) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rank 0 may not be listening yet
  }
  throw InputError(message("rendezvous at ", where, ": rank ", meeting.rank, " got no answer from rank 0 within ",
                           in_seconds(meeting.deadline),
                           "; does rank 0 run there, and may this machine connect to it?"));
}

tcp::acceptor listen_at(asio::io_context& io, int port) {
  tcp::acceptor acceptor(io);
  error_code error;
  tcp::endpoint all(tcp::v6(), static_cast<std::uint16_t>(port));
  acceptor.open(all.protocol(), error);
  if (error) {  // the machine does not support IPv6
    all = tcp::endpoint(tcp::v4(), static_cast<std::uint16_t>(port));
    acceptor.open(all.protocol(), error);
  } else {
    acceptor.set_option(asio::ip::v6_only(false), error);
  }
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(all, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  require<InputError>(!error, "rendezvous: rank 0 cannot listen at port ", port, " (", error.message(),
                      "); choose another MASTER_PORT");
  return acceptor;
}

/// Rank 0's side of a rendezvous.
class Host {
 public:
  Host(const Meeting& meeting, int port, std::span<std::byte> bytes)
      : meeting_(meeting),
        port_(port),
        bytes_(bytes),
        acceptor_(listen_at(io_, port)),
        came_(static_cast<std::size_t>(meeting.size)) {}

  void serve() {
    accept();
    io_.run_until(deadline_after(Clock::now(), meeting_.deadline));
    require<InputError>(missing_ == 0, "rendezvous at port ", port_, ": ", missing_ranks(came_),
                        " did not come within ", in_seconds(meeting_.deadline), "; is WORLD_SIZE ", meeting_.size,
                        ", and do all ranks know this machine as MASTER_ADDR?");
  }

 private:
  /// A connected peer, with its request and the reply.
  struct ConnectedPeer {
    tcp::socket socket;
    Message question, reply;
    bool ours = false;
  };
  using Shared = std::shared_ptr<ConnectedPeer>;

  void accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (!error)
        read_request(
            std::make_shared<ConnectedPeer>(ConnectedPeer{.socket = std::move(socket), .question = {}, .reply = {}}));
      accept();
    });
  }
  void read_request(const Shared& guest) {
    asio::async_read(guest->socket, buffer_of(guest->question), [this, guest](const error_code& error, std::size_t) {
      if (!error && guest->question.mark == rendezvous_mark) answer(guest);
    });
  }
  void answer(const Shared& guest) {
    const Message& question = guest->question;
    guest->reply = request_message(meeting_, bytes_, question.number);
    const bool of_this_job = question.size == guest->reply.size && question.bytes == guest->reply.bytes &&
                             question.rank > 0 && question.rank < meeting_.size;
    const bool known = of_this_job && came_[static_cast<std::size_t>(question.rank)];
    guest->reply.refused = known ? 1 : 0;
    guest->ours = of_this_job && !known;
    if (guest->ours) came_[static_cast<std::size_t>(question.rank)] = true;
    const std::array<asio::const_buffer, 2> sent{buffer_of(guest->reply),
                                                 guest->ours ? buffer_of(bytes_) : asio::mutable_buffer{}};
    asio::async_write(guest->socket, sent, [this, guest](const error_code& error, std::size_t) {
      if (!guest->ours) return;
      if (error)
        came_[static_cast<std::size_t>(guest->question.rank)] = false;  // the rank may request again
      else if (--missing_ == 0)
        io_.stop();
    });
  }

  Meeting meeting_;
  int port_;
  std::span<std::byte> bytes_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  std::vector<bool> came_;
  int missing_ = meeting_.size - 1;
};

}  // namespace

void require_devices(const JobPlace& place, int devices) {
  require<InputError>(
      place.local_size <= devices, "rank ", place.rank, ": ", place.local_size,
      " ranks run on this machine, which has ", devices,
      " devices; NCCL wants one for each: start fewer ranks, or compile a stack on comm::Threads<device::Cuda>, whose "
      "ranks share one");
}

void rendezvous_over_tcp(const Meeting& meeting, const std::string& address, int port, std::span<std::byte> bytes) {
  if (meeting.size == 1) return;
  if (meeting.rank == 0)
    Host(meeting, port, bytes).serve();
  else
    ask(meeting, address, port, bytes);
}

}  // namespace fsdp::comm
