#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <shared_tensor/receipt.hpp>

#include "http/message.hpp"

namespace shared_tensor::client {

/// What a server says of the times of a call, in Server-Timing. None: it said nothing.
struct ServerTimes {
    std::optional<std::chrono::nanoseconds> queue, compute;
};

/// Reads the field's value: "queue;dur=0.012, compute;dur=1.250", in milliseconds. Passes over what it does not know.
ServerTimes read_server_times(std::string_view field);

/// Reads the value of Shared-Tensor-Transport: "shm;tensors=2;copied=0, body;tensors=1;copied=400".
std::vector<Receipt::Transport> read_transports(std::string_view field);

/// Notes what an answer says. `copied`: bytes that the client copied for its request.
void note_answer(Receipt& receipt, const http::Headers& headers, std::uint64_t copied);

}  // namespace shared_tensor::client
