// SPDX-License-Identifier: Apache-2.0
/// @file
/// The only function of ISA-L that checkpoints use, computed bit by bit, for machines without the library
/// (bench/gpu.sh).
#pragma once

inline unsigned int crc32_iscsi(unsigned char* bytes, int length, unsigned int crc) {
  for (int i = 0; i < length; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
  }
  return crc;
}
