// SPDX-License-Identifier: Apache-2.0
/// @file
/// A port on which a test's ranks can meet.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace fsdp::comm {

/// A port that the system gave out a moment ago.
inline int free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  EXPECT_EQ(bind(probe, reinterpret_cast<sockaddr*>(&at), length), 0);
  getsockname(probe, reinterpret_cast<sockaddr*>(&at), &length);
  close(probe);
  return ntohs(at.sin_port);
}

}  // namespace fsdp::comm
