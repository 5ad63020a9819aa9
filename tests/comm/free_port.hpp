// SPDX-License-Identifier: Apache-2.0
/// @file
/// A TCP port for the rendezvous of a test's ranks, and their places.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <tessera/comm/rendezvous.hpp>

namespace fsdp::comm {

inline sockaddr_in loopback(int port = 0) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  return at;
}

/// Returns a port that the operating system reported as free a moment ago.
inline int free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at = loopback();
  socklen_t length = sizeof at;
  EXPECT_EQ(bind(probe, reinterpret_cast<sockaddr*>(&at), length), 0);
  getsockname(probe, reinterpret_cast<sockaddr*>(&at), &length);
  close(probe);
  return ntohs(at.sin_port);
}

/// The place of one rank of a job whose ranks a launcher started on this machine; in tests, the ranks are threads.
inline JobPlace place_of(int rank, int size, int port) {
  return {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .address = "localhost", .port = port};
}

}  // namespace fsdp::comm
