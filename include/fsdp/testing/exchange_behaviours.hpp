// SPDX-License-Identifier: Apache-2.0
/// @file
/// Required behaviour of communicators that exchange pieces (comm::ExchangingCommunicator). The checks do nothing for
/// other communicators. See behaviours.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/testing/behaviours.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/values.hpp>

namespace fsdp::testing {

/// Returns the number of elements that `from` sends to `to`. It differs between ranks; rank 1 sends nothing, and other
/// ranks send nothing to some peers.
inline std::int64_t exchanged_count(int from, int to, std::int64_t step) {
  return from == 1 || (from + to) % 4 == 3 ? 0 : step * (from + 1) + to;
}

/// Returns element `index` of the data that `from` sends to `to`: a number that T represents exactly and that
/// identifies the element.
template <class T>
T exchanged_value(int from, int to, std::int64_t index) {
  const auto pair = static_cast<float>(16 * from + to);
  return sizeof(T) < 4 ? T(2 * pair + static_cast<float>(index % 2)) : T(4096 * pair + static_cast<float>(index));
}

/// One rank's part in an exchange, with the values that it must receive.
template <class T>
struct ExchangedValues {
  Counts send_counts, receive_counts;
  Values<T> send, receive, expected;

  ExchangedValues(int rank, int size, std::int64_t step) {
    for (int peer = 0; peer < size; ++peer) {
      send_counts.push_back(exchanged_count(rank, peer, step));
      receive_counts.push_back(exchanged_count(peer, rank, step));
      for (std::int64_t i = 0; i < send_counts.back(); ++i) send.push_back(exchanged_value<T>(rank, peer, i));
      for (std::int64_t i = 0; i < receive_counts.back(); ++i) expected.push_back(exchanged_value<T>(peer, rank, i));
    }
    receive.assign(expected.size(), T(-1));
  }
  comm::Exchange<T> exchange() { return {send.data(), send_counts, receive.data(), receive_counts}; }
  std::vector<comm::Exchange<T>> list() { return {exchange()}; }
};

/// A behaviour whose check_exchanges(communicator) is called for communicators that exchange pieces.
template <class Own>
struct OfExchanges {
  template <class C>
  static void check(C& c) {
    if constexpr (comm::ExchangingCommunicator<C>) Own::check_exchanges(c);
  }
};

struct ExchangesUnevenAndEmptyPieces : OfExchanges<ExchangesUnevenAndEmptyPieces> {
  static constexpr const char* asked =
      "all_to_all copies every piece of the `send` of every rank into the `receive` of the rank that it is for, in the "
      "order of ranks; pieces differ in length, and some are empty";
  template <class T, class C>
  static void check_type(C& c) {
    ExchangedValues<T> values(c.rank(), c.size(), 5);
    const Values<T> sent = values.send;

    comm::all_to_all(c, values.list()).wait();

    const std::string type(name_of(dtype_of<T>()));
    expect_values(asked, c, message("`receive` of ", type, ", which tells what each element is"), values.receive,
                  values.expected);
    expect_values(asked, c, message("`send` of ", type, ", which is left as it was"), values.send, sent);
  }
  /// Exchanges a `send` buffer that begins at the end of `receive`, while no rank sends anything to itself. This does
  /// not count as an exchange in place.
  static void check_neighbours(auto& c) {
    const std::int64_t number = 3 * (c.size() - 1);
    Counts counts = equal_counts(c.size(), 3);
    counts[static_cast<std::size_t>(c.rank())] = 0;
    Floats values(static_cast<std::size_t>(2 * number), static_cast<float>(c.rank()));
    Floats expected = values;
    for (std::int64_t i = 0; i < number; ++i)
      expected[static_cast<std::size_t>(i)] = static_cast<float>(i / 3 < c.rank() ? i / 3 : i / 3 + 1);

    comm::all_to_all(c, std::vector<comm::Exchange<float>>{{values.data() + number, counts, values.data(), counts}})
        .wait();

    expect_values(asked, c, "`receive`, then `send` right after it: the rank that each element is from", values,
                  expected);
  }
  static void check_exchanges(auto& c) {
    check_type<float>(c);
    check_type<bf16>(c);
    check_neighbours(c);
  }
};

/// Exchanges more tensors than the first message of a transfer can describe.
struct ExchangesSeveralTensorsAsOneCollective : OfExchanges<ExchangesSeveralTensorsAsOneCollective> {
  static constexpr const char* asked =
      "all_to_all takes a list of 7 exchanges of different lengths, one without any element, as one collective";
  static void check_exchanges(auto& c) {
    std::vector<ExchangedValues<float>> values;
    std::vector<comm::Exchange<float>> exchanges;
    for (int i = 0; i < 7; ++i) values.emplace_back(c.rank(), c.size(), 2 + 3 * i);
    for (ExchangedValues<float>& each : values) exchanges.push_back(each.exchange());
    const Counts none = equal_counts(c.size(), 0);
    exchanges[3] = {nullptr, none, nullptr, none};
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      bytes += i == 3 ? 0 : 4 * static_cast<std::int64_t>(values[i].expected.size());
    const comm::Totals before = c.monitor().totals;

    comm::all_to_all(c, exchanges).wait();

    const comm::Totals& after = c.monitor().totals;
    const comm::Traffic counted = after.traffic - before.traffic;
    expect_value(asked, c, "the number of all_to_alls that monitor() counted", counted[comm::Op::all_to_all].calls,
                 std::int64_t{1});
    expect_value(asked, c, "the bytes of all `receive` that monitor() counted", counted[comm::Op::all_to_all].bytes,
                 bytes);
    expect_value(asked, c, "monitor().totals.copied_bytes, all of `receive`", after.copied_bytes - before.copied_bytes,
                 bytes);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (i != 3 &&
          !expect_values(asked, c, message("`receive` of exchange ", i), values[i].receive, values[i].expected))
        return;
  }
};

struct ExchangesBesideOtherCollectives : OfExchanges<ExchangesBesideOtherCollectives> {
  static constexpr const char* asked =
      "exchanges, gathers and reductions may be in flight together, more of them than a backend has slots for; test() "
      "makes progress, and each has its result once it was tested or waited for";
  template <class C>
  static void check_exchanges(C& c) {
    constexpr int rounds = 12;  // each round has three collectives
    const Counts counts = uneven_counts(c.size(), 50);
    const std::int64_t begin = begin_of(counts, c.rank());
    std::vector<ExchangedValues<bf16>> exchanged;
    std::vector<Floats> full, summed;
    for (int i = 0; i < rounds; ++i) {
      exchanged.emplace_back(c.rank(), c.size(), 40 + i);
      full.push_back(contributions(c.rank(), total_of(counts)));
      summed.push_back(contributions(c.rank(), total_of(counts)));
    }
    std::vector<comm::Pending<C>> pending;
    for (std::size_t i = 0; i < rounds; ++i) {
      pending.push_back(comm::all_gather(c, one_segment(full[i].data() + begin, full[i].data(), counts)));
      pending.push_back(comm::all_to_all(c, exchanged[i].list()));
      pending.push_back(comm::all_reduce<float>(c, one_segment(summed[i].data() + begin, summed[i].data(), counts)));
    }
    while (!pending[1].test()) std::this_thread::yield();
    for (comm::Pending<C>& each : pending) each.wait();

    const auto pieces = gathered<float>(counts, contribution);
    const auto sums = sums_of_contributions<float>(c.size(), 0, std::ssize(pieces));
    for (std::size_t i = 0; i < rounds; ++i) {
      const std::string of = message(" of round ", i);
      expect_values(asked, c, "`receive` of the all_to_all" + of, exchanged[i].receive, exchanged[i].expected);
      expect_values(asked, c, "`full` of the all_gather" + of, full[i], pieces);
      expect_values(asked, c, "`full` of the all_reduce" + of, summed[i], sums);
    }
  }
};

struct KeepsExchangedMemoryUntilPeersHaveReadIt : OfExchanges<KeepsExchangedMemoryUntilPeersHaveReadIt> {
  static constexpr const char* asked =
      "wait() of an all_to_all returns when `receive` is in place and no other rank reads `send` any more, whichever "
      "rank comes or waits first";
  static void check_exchanges(auto& c) {
    for (int round = 0; round < 2; ++round) {
      ExchangedValues<float> values(c.rank(), c.size(), 300);
      check_wait(
          asked, c, round, [&] { return comm::all_to_all(c, values.list()); }, "`receive`", values.receive,
          values.expected, "`send`", values.send);
    }
  }
};

struct CutsLongExchanges {
  static constexpr const char* asked =
      "where monitor().options.message_bytes is 13, an all_to_all of more bytes moves the same values";
  static void check(auto& c) {
    const std::int64_t usual = std::exchange(c.monitor().options.message_bytes, 13);
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, asked);
    ExchangesUnevenAndEmptyPieces::check(c);
    c.monitor().options.message_bytes = usual;
  }
};

struct ChecksFindExchangesThatDisagree : OfExchanges<ChecksFindExchangesThatDisagree> {
  static constexpr const char* asked =
      "with monitor().options.checks on, where the last rank exchanges something else than the others expect every "
      "rank throws a CollectiveError that says how they differ, and the communicator can be used afterwards";
  static void check_exchanges(auto& c) {
    if (c.size() == 1) return;
    const bool usual_checks = std::exchange(c.monitor().options.checks, true);
    const int last = c.size() - 1;
    const bool odd = c.rank() == last;
    ExchangedValues<float> values(c.rank(), c.size(), 4);
    const auto expect = [&](std::string_view which, auto call, const std::vector<std::string>& parts) {
      expect_collective_error(asked, c, which, call, parts);
    };
    const Counts counts = equal_counts(c.size(), 4);
    Floats full(4 * counts.size()), local(4);
    const auto segments = one_segment(local.data(), full.data(), counts);
    expect("an all_gather instead of an all_to_all",
           [&] { odd ? comm::all_gather(c, segments).wait() : comm::all_to_all(c, values.list(), {.unit = 3}).wait(); },
           {c.monitor().name_of(0) + " is in all_to_all of unit 3 (f32, ", "is in all_gather"});

    ExchangedValues<float> fewer = values;
    const std::int64_t sent = exchanged_count(0, last, 4);
    if (odd) fewer.receive_counts[0] = sent + 1;
    if (odd) fewer.receive.push_back(0);
    auto two = values.list();
    two.push_back(fewer.exchange());
    expect("an all_to_all that receives from rank 0 one element more than that sends, in exchange 1",
           [&] { comm::all_to_all(c, two).wait(); },
           {message("in exchange 1, ", c.monitor().name_of(0), " sends ", sent, " elements to ",
                    c.monitor().name_of(last), ", which receives ", sent + 1)});
    expect("an all_to_all of two exchanges instead of one",
           [&] { comm::all_to_all(c, odd ? two : values.list()).wait(); }, {"ranks disagree"});
    auto integers = std::vector<comm::Exchange<std::int32_t>>{
        {reinterpret_cast<const std::int32_t*>(values.send.data()), values.send_counts,
         reinterpret_cast<std::int32_t*>(values.receive.data()), values.receive_counts}};
    expect("an all_to_all of integers instead of floats",
           [&] { odd ? comm::all_to_all(c, integers).wait() : comm::all_to_all(c, values.list()).wait(); },
           {"(f32, ", "(i32, "});

    comm::all_to_all(c, values.list()).wait();
    expect_values(asked, c, "`receive` of an all_to_all after those that failed", values.receive, values.expected);
    c.monitor().options.checks = usual_checks;
  }
};

struct RefusesBrokenExchanges : OfExchanges<RefusesBrokenExchanges> {
  static constexpr const char* asked = "an all_to_all with arguments that cannot be right throws a LogicError at once";
  static void check_exchanges(auto& c) {
    const auto n = static_cast<std::size_t>(c.size());
    const Counts counts(n, 2), too_many(n + 1, 2), negative(n, -1);
    Counts others = counts;
    others[static_cast<std::size_t>(c.rank())] = 1;
    Floats send(2 * n), receive(2 * n), more(4 * n);
    const auto expect_of_call = [&](std::string_view which, const std::vector<comm::Exchange<float>>& call) {
      expect_error<LogicError>(asked, c, which, [&] { comm::all_to_all(c, call).wait(); });
    };
    const auto expect = [&](std::string_view which, const comm::Exchange<float>& exchange) {
      expect_of_call(which, {exchange});
    };
    expect("one send count too many", {send.data(), too_many, receive.data(), counts});
    expect("one receive count too many", {send.data(), counts, receive.data(), too_many});
    expect("counts of -1", {send.data(), negative, receive.data(), negative});
    expect("no memory for `send`", {nullptr, counts, receive.data(), counts});
    expect("no memory for `receive`", {send.data(), counts, nullptr, counts});
    expect("less from itself than it sends itself", {send.data(), counts, receive.data(), others});
    expect("a `receive` that is `send`", {send.data(), counts, send.data(), counts});
    expect("a `receive` that begins in the last element of `send`",
           {more.data(), counts, more.data() + 2 * n - 1, counts});
    expect_of_call("a `receive` that is the `send` of another exchange",
                   {{send.data(), counts, receive.data(), counts}, {more.data(), counts, send.data(), counts}});
    expect_of_call("two exchanges that receive in one place",
                   {{send.data(), counts, receive.data(), counts}, {send.data(), counts, receive.data(), counts}});
  }
};

}  // namespace fsdp::testing
