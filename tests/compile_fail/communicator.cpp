// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: a communicator lacks template <class T> Request all_gather(std::span<const Segment<T>>), which starts
// expect 2: fsdp: a communicator lacks template <class Wire> Request reduce_scatter(std::span<const Segment<float>>,
// expect 2: fsdp: a communicator lacks template <class Wire> Request all_reduce(std::span<const Segment<float>>), which
// expect 2: fsdp: a communicator's reduce_scatter takes Contributions as its third argument and returns no Request
// expect 2: fsdp: a communicator's reduce_scatter takes SumOrder as its fourth argument and returns no Request
// expect 2: fsdp: a communicator lacks C split(int color); ranks of equal color form a new communicator
// expect 3: fsdp: a communicator has an all_to_all that is no template <class T> Request all_to_all(std::span<const
// expect 3: fsdp: a communicator has a scratch_bytes that is no std::int64_t scratch_bytes() const
// expect 3: fsdp: a communicator has a scratch_bytes_for that is no static std::int64_t scratch_bytes_for(int ranks)
// expect 3: fsdp: a communicator has a shared_memory that is no std::shared_ptr<std::byte> shared_memory(std::int64_t
// expect 3: fsdp: a communicator has a can_be_captured that is no static constexpr bool
// expect 3: fsdp: a communicator has a device_for_each_rank that is no static constexpr bool
// expect 3: fsdp: a communicator has an end_run that is no void end_run(std::string_view axis) noexcept
#include <tessera/comm/self.hpp>

namespace fsdp::comm {

template <class T>
using Segments = std::span<const Segment<T>>;

/// Self with a different name.
template <class Mine>
struct Own : Self<> {
  Mine split(int color);
};
struct Sound : Own<Sound> {};

struct GathersWithoutRequest : Own<GathersWithoutRequest> {
  template <class T>
  void all_gather(Segments<T> segments);
};
struct GathersFloatAlone : Own<GathersFloatAlone> {
  Request all_gather(Segments<float> segments);
};

struct ScattersWithoutRequest : Own<ScattersWithoutRequest> {
  template <class Wire>
  void reduce_scatter(Segments<float> segments, Write write);
};
struct ReducesWithoutRequest : Own<ReducesWithoutRequest> {
  template <class Wire>
  bool all_reduce(Segments<float> segments);
};
struct SpendsWithoutRequest : Own<SpendsWithoutRequest> {
  template <class Wire>
  Request reduce_scatter(Segments<float> segments, Write write);
  template <class Wire>
  void reduce_scatter(Segments<float> segments, Write write, Contributions contributions);
};
struct OrdersWithoutRequest : Own<OrdersWithoutRequest> {
  template <class Wire>
  Request reduce_scatter(Segments<float> segments, Write write);
  template <class Wire>
  void reduce_scatter(Segments<float> segments, Write write, Contributions contributions, SumOrder order);
};
struct SplitsIntoItsBase : Self<> {};

struct ExchangesWithoutRequest : Own<ExchangesWithoutRequest> {
  template <class T>
  void all_to_all(std::span<const Exchange<T>> exchanges);
};
struct HoldsInt : Own<HoldsInt> {
  int scratch_bytes() const;
};
struct HoldsOfItsOwn : Own<HoldsOfItsOwn> {
  std::int64_t scratch_bytes_for(int ranks) const;
};
struct SharesPointer : Own<SharesPointer> {
  std::byte* shared_memory(std::int64_t bytes);
};
struct CapturesAtRunTime : Own<CapturesAtRunTime> {
  bool can_be_captured = true;
};
struct AloneAtRunTime : Own<AloneAtRunTime> {
  bool device_for_each_rank() const;
};
struct EndsWithoutAxis : Own<EndsWithoutAxis> {
  void end_run() noexcept;
};
struct EndsByThrowing : Own<EndsByThrowing> {
  void end_run(std::string_view axis);
};
struct EndsInTime : Own<EndsInTime> {
  void end_run(std::string_view axis) noexcept;
};

#if CASE == 0
static_assert(check_communicator<Sound>() && check_communicator<EndsInTime>());
#elif CASE == 1
static_assert(check_communicator<GathersWithoutRequest>());
static_assert(check_communicator<GathersFloatAlone>());
#elif CASE == 2
static_assert(check_communicator<ScattersWithoutRequest>());
static_assert(check_communicator<ReducesWithoutRequest>());
static_assert(check_communicator<SpendsWithoutRequest>());
static_assert(check_communicator<OrdersWithoutRequest>());
static_assert(check_communicator<SplitsIntoItsBase>());
#elif CASE == 3
static_assert(check_communicator<ExchangesWithoutRequest>());
static_assert(check_communicator<HoldsInt>());
static_assert(check_communicator<HoldsOfItsOwn>());
static_assert(check_communicator<SharesPointer>());
static_assert(check_communicator<CapturesAtRunTime>());
static_assert(check_communicator<AloneAtRunTime>());
static_assert(check_communicator<EndsWithoutAxis>());
static_assert(check_communicator<EndsByThrowing>());
#endif

}  // namespace fsdp::comm
