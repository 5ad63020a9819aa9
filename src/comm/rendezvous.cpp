// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rendezvous over TCP. Rank 0 serves all ranks concurrently: a peer that connects but sends nothing does not delay the
/// others.
#include <tessera/comm/rendezvous.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string_view>
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
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Watch = std::shared_ptr<PeerWatch>;

constexpr std::array<char, 16> rendezvous_mark = {'t', 'e', 's', 's', 'e', 'r', 'a', ' ',
                                                  'm', 'e', 'e', 't', 's', ' ', '2', '\n'};

/// A message of a rendezvous: a rank's request, which a Report follows, and rank 0's answer, which a Report and rank
/// 0's bytes follow. It is sent without conversion: both sides must have the same byte order.
struct Message {
  std::array<char, 16> mark = rendezvous_mark;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int64_t bytes = 0;
  std::uint64_t number = 0;  ///< random number drawn by the requesting rank; the answer repeats it
};

/// A text that ends with a zero: a problem or a refusal, or else the identity of a rank's device or nothing.
struct Report {
  std::int64_t is_problem = 0;
  std::array<char, 1016> text = {};
};

Report report_of(const std::string& problem, const std::string& device) {
  Report report{.is_problem = problem.empty() ? 0 : 1};
  sentence(problem.empty() ? device : problem, report.text.size() - 1).copy(report.text.data(), report.text.size() - 1);
  return report;
}

template <class T>
asio::mutable_buffer buffer_of(T& value) {
  return asio::buffer(&value, sizeof value);
}
asio::mutable_buffer buffer_of(std::span<std::byte> bytes) { return asio::buffer(bytes.data(), bytes.size()); }

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
}

/// Returns why ranks with these reports cannot be one job; empty if they can.
std::string refusal_of(std::span<const Report> reports) {
  std::string text;
  std::map<std::string_view, std::size_t> user_of;  // the first rank with a device
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const std::string_view report = reports[rank].text.data();
    if (reports[rank].is_problem != 0) return message("rank ", rank, ": ", report);
    const auto [first, is_new] = user_of.try_emplace(report, rank);
    if (!report.empty() && !is_new && text.empty())
      text = message("rank ", first->second, " and rank ", rank, " use the same device, ", report,
                     "; give every rank a separate GPU (LOCAL_RANK, CUDA_VISIBLE_DEVICES)");
  }
  return text;
}

Watch ask(const Meeting& meeting, const std::string& address, int port, std::span<std::byte> bytes) {
  const std::string where = message(address, ":", port);
  const Clock::time_point deadline = deadline_after(Clock::now(), meeting.deadline);
  asio::io_context io;
  error_code unknown;
  const auto endpoints = tcp::resolver(io).resolve(address, std::to_string(port), unknown);
  require<InputError>(!unknown, "rendezvous at ", where, ": the address is not known (", unknown.message(),
                      "); see MASTER_ADDR");
  std::random_device random;
  Message question = request_message(meeting, bytes, std::uint64_t{random()} << 32 | random());
  Report report = report_of(meeting.problem, meeting.device);
  const std::array<asio::const_buffer, 2> request{buffer_of(question), buffer_of(report)};
  while (Clock::now() < deadline) {
    asio::io_context attempt;
    tcp::socket socket(attempt);
    const auto does = [&](const auto& start) { return completes(attempt, deadline, start); };
    Message answer;
    answer.mark = {};
    if (does([&](auto done) { asio::async_connect(socket, endpoints, done); }) &&
        does([&](auto done) { asio::async_write(socket, request, done); }) &&
        does([&](auto done) { asio::async_read(socket, buffer_of(answer), done); })) {
      require_same_job(question, answer, where);
      Report refusal;
      const std::array rest{buffer_of(refusal), buffer_of(bytes)};
      const bool complete = does([&](auto done) { asio::async_read(socket, rest, done); });
      require<InputError>(!complete || refusal.is_problem == 0, refusal.text.data());
      if (complete)
        return std::make_shared<PeerWatch>(meeting.rank, std::vector<PeerWatch::Peer>{{0, socket.release()}});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rank 0 may not be listening yet
  }
  throw InputError(message("rendezvous at ", where, ": rank ", meeting.rank, " got no answer from rank 0 within ",
                           in_seconds(meeting.deadline),
                           ", the deadline of the start; does rank 0 run there, may this machine connect to it, and "
                           "have all ranks started?"));
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

/// Rank 0's side of a rendezvous: answers all ranks once all have come, or the deadline has passed.
class Host {
 public:
  Host(const Meeting& meeting, int port, std::span<std::byte> bytes)
      : meeting_(meeting),
        port_(port),
        bytes_(bytes),
        acceptor_(listen_at(io_, port)),
        came_(static_cast<std::size_t>(meeting.size)),
        reports_(came_.size()) {
    reports_[0] = report_of(meeting.problem, meeting.device);
  }

  Watch serve() {
    accept();
    io_.run_until(deadline_after(Clock::now(), meeting_.deadline));
    std::string refusal = refusal_of(reports_);
    if (refusal.empty() && missing_ > 0) refusal = missing_ranks();
    std::vector<PeerWatch::Peer> peers;
    for (const Shared& guest : came_) {
      if (guest == nullptr) continue;
      answer(*guest, refusal);
      if (refusal.empty()) peers.push_back({guest->question.rank, guest->socket.release()});
    }
    require<InputError>(refusal.empty(), refusal);
    return std::make_shared<PeerWatch>(0, std::move(peers));
  }

 private:
  /// A connected peer with its request.
  struct ConnectedPeer {
    tcp::socket socket;
    Message question = {};
    Report report = {};
  };
  using Shared = std::shared_ptr<ConnectedPeer>;

  void accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (!error) read_request(std::make_shared<ConnectedPeer>(ConnectedPeer{.socket = std::move(socket)}));
      accept();
    });
  }
  void read_request(const Shared& guest) {
    const std::array<asio::mutable_buffer, 2> request{buffer_of(guest->question), buffer_of(guest->report)};
    asio::async_read(guest->socket, request, [this, guest](const error_code& error, std::size_t) {
      if (!error && guest->question.mark == rendezvous_mark) admit(guest);
    });
  }
  void admit(const Shared& guest) {
    const Message& question = guest->question;
    const bool of_this_job = question.size == meeting_.size &&
                             question.bytes == static_cast<std::int64_t>(bytes_.size()) && question.rank > 0 &&
                             question.rank < meeting_.size;
    const auto rank = static_cast<std::size_t>(of_this_job ? question.rank : 0);
    if (!of_this_job || came_[rank] != nullptr)
      return answer(*guest, message("rendezvous: somebody else is rank ", question.rank,
                                    " already; every process needs a rank of its own"));
    came_[rank] = guest;
    reports_[rank] = guest->report;
    if (--missing_ == 0) return io_.stop();
    // Sends nothing more, so that a read ends when the connection does. The rank may come again.
    guest->socket.async_wait(tcp::socket::wait_read, [this, rank](const error_code&) {
      came_[rank] = nullptr;
      ++missing_;
    });
  }
  /// Sends the bytes and the refusal, if it is not empty. Does not block: a socket's buffer has room for an answer.
  void answer(ConnectedPeer& guest, const std::string& refusal) {
    Message reply = request_message(meeting_, bytes_, guest.question.number);
    Report report = report_of(refusal, {});
    error_code lost;  // the peer reports a rendezvous without an answer
    asio::write(guest.socket, std::array{buffer_of(reply), buffer_of(report), buffer_of(bytes_)}, lost);
  }
  /// Returns the refusal that lists the ranks that did not come.
  std::string missing_ranks() const {
    std::string text;
    for (std::size_t rank = 1; rank < came_.size(); ++rank)
      if (came_[rank] == nullptr) text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
    return message("rendezvous at port ", port_, ": ", text, " did not come within ", in_seconds(meeting_.deadline),
                   ", the deadline of the start; is WORLD_SIZE ", meeting_.size,
                   ", and do all ranks know this machine as MASTER_ADDR?");
  }

  Meeting meeting_;
  int port_;
  std::span<std::byte> bytes_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  std::vector<Shared> came_;     ///< by rank
  std::vector<Report> reports_;  ///< by rank
  int missing_ = meeting_.size - 1;
};

}  // namespace

Watch rendezvous_over_tcp(const Meeting& meeting, const std::string& address, int port, std::span<std::byte> bytes) {
  if (meeting.size == 1) {
    require<InputError>(meeting.problem.empty(), meeting.problem);
    return nullptr;
  }
  return meeting.rank == 0 ? Host(meeting, port, bytes).serve() : ask(meeting, address, port, bytes);
}

}  // namespace fsdp::comm
