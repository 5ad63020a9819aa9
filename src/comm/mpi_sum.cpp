// SPDX-License-Identifier: Apache-2.0
#include "mpi_sum.hpp"

#include <algorithm>

#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::comm {

PieceSum::PieceSum(Messages& messages, std::int64_t scratch_bytes)
    : messages_(messages),
      memory_(static_cast<std::size_t>(scratch_bytes)),
      to_send_(static_cast<std::size_t>(messages.size())),
      contributions_(static_cast<std::size_t>(messages.size())) {
  if (memory_.empty()) return;
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  scratch_ =
      memory_.data() + (PieceScratch::cache_line - address % PieceScratch::cache_line) % PieceScratch::cache_line;
  piece_bytes_ = (scratch_bytes - PieceScratch::cache_line) / PieceScratch::pieces(messages.size());
}

void PieceSum::begin(std::uint64_t ticket, const Transfer& transfer, std::span<const SumPeer> peers, int threads) {
  ticket_ = ticket;
  transfer_ = &transfer;
  peers_ = peers;
  threads_ = threads;
  arrive_from_ = 0;
  for (int peer = 0; peer < messages_.size(); ++peer) arrive_from_ += arrives_from(peer);
  piece_elements_ = piece_bytes_ / size_of(transfer.wire);
  to_receive_ = {};
  std::fill(to_send_.begin(), to_send_.end(), Cursor{});
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    if (arrive_from_ > 0) post_receives(slot);
    for (int step = 1; step < messages_.size(); ++step) post_send((messages_.rank() + step) % messages_.size(), slot);
  }
  if (arrive_from_ > 0) return;
  for (std::size_t index = 0; index < transfer.segments.size(); ++index) {
    const ByteSegment& segment = transfer.segments[index];
    sum({.segment = index, .begin = segment.begin(messages_.rank()), .count = segment.count(messages_.rank())}, 0);
  }
}

void PieceSum::on(const Message& message) {
  if (message.sent) {
    --sending_;
    post_send(message.peer, message.piece);
    return;
  }
  const auto slot = static_cast<std::size_t>(message.piece);
  if (--missing_[slot] > 0) return;
  sum(arriving_[slot], message.piece);
  --receiving_;
  post_receives(message.piece);
}

bool PieceSum::next(Cursor& cursor, int rank, Piece& piece) const {
  for (; cursor.segment < transfer_->segments.size(); ++cursor.segment, cursor.offset = 0) {
    const ByteSegment& segment = transfer_->segments[cursor.segment];
    if (cursor.offset >= segment.count(rank)) continue;
    piece = {.segment = cursor.segment,
             .begin = segment.begin(rank) + cursor.offset,
             .count = std::min(piece_elements_, segment.count(rank) - cursor.offset),
             .own_begin = cursor.offset};
    cursor.offset += piece.count;
    return true;
  }
  return false;
}

void PieceSum::post_receives(std::int64_t slot) {
  Piece& piece = arriving_[static_cast<std::size_t>(slot)];
  if (!next(to_receive_, messages_.rank(), piece)) return;
  ++receiving_;
  missing_[static_cast<std::size_t>(slot)] = arrive_from_;
  for (int peer = 0; peer < messages_.size(); ++peer)
    if (arrives_from(peer))
      messages_.start({.transfer = ticket_, .kind = MessageKind::piece, .peer = peer, .piece = slot},
                      scratch(false, slot, peer), piece.count * size_of(transfer_->wire));
}

void PieceSum::post_send(int peer, std::int64_t slot) {
  Piece piece;
  if (peers_[static_cast<std::size_t>(peer)].reads || !next(to_send_[static_cast<std::size_t>(peer)], peer, piece))
    return;
  ++sending_;
  std::byte* data = transfer_->segments[piece.segment].full + piece.begin * transfer_->element_bytes();
  if (transfer_->wire == DType::bf16) {
    std::byte* const rounded = scratch(true, slot, peer);
    round_to_bf16(reinterpret_cast<const float*>(data), piece.count, reinterpret_cast<bf16*>(rounded));
    data = rounded;
  }
  messages_.start({.transfer = ticket_, .kind = MessageKind::piece, .sent = true, .peer = peer, .piece = slot}, data,
                  piece.count * size_of(transfer_->wire));
}

void PieceSum::sum(const Piece& piece, std::int64_t slot) {
  const ByteSegment& segment = transfer_->segments[piece.segment];
  const std::int64_t offset = piece.begin * transfer_->element_bytes();
  for (int peer = 0; peer < messages_.size(); ++peer) {
    Contribution& contribution = contributions_[static_cast<std::size_t>(peer)];
    if (peer == messages_.rank())
      contribution = {.data = segment.full + offset};
    else if (arrives_from(peer))
      contribution = {.data = scratch(false, slot, peer), .stored = transfer_->wire};
    else
      contribution = {.data = peers_[static_cast<std::size_t>(peer)].sources[piece.segment] + offset};
  }
  sum_in_order(contributions_, transfer_->wire, piece.count, transfer_->write,
               reinterpret_cast<float*>(segment.local) + piece.own_begin, threads_);
}

bool PieceSum::arrives_from(int peer) const {
  return peer != messages_.rank() && peers_[static_cast<std::size_t>(peer)].sources.empty();
}

std::byte* PieceSum::scratch(bool sent, std::int64_t slot, int peer) {
  const std::int64_t column = peer < messages_.rank() ? peer : peer - 1;
  const std::int64_t row = (sent ? slots : 0) + slot;
  return scratch_ + (row * (messages_.size() - 1) + column) * piece_bytes_;
}

}  // namespace fsdp::comm
