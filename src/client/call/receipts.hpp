#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <shared_tensor/client/options.hpp>

#include "net/message/message.hpp"
#include "net/message/text.hpp"

namespace shared_tensor::client {

/// Calls `use` with each part between separators, without the blanks around it.
template <class Use>
void for_each_part(std::string_view text, char separator, Use use) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(separator), text.size());
        use(net::trim(text.substr(0, end)));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

/// The times of a call in the server, from Server-Timing. A time is empty if the field did not contain it.
struct ServerTimes {
    std::optional<std::chrono::nanoseconds> queue, compute;
};

/// Reads the field's value: "queue;dur=0.012, compute;dur=1.250", in milliseconds. Skips unknown entries.
ServerTimes read_server_times(std::string_view field);

/// Reads the value of Shared-Tensor-Transport: "shm;tensors=2;copied=0, body;tensors=1;copied=400".
std::vector<Receipt::Transport> read_transports(std::string_view field);

/// Fills `receipt` from the header fields of an answer. `copied`: bytes that the client copied for the request.
void note_answer(Receipt& receipt, const net::Headers& headers, std::uint64_t copied);

}  // namespace shared_tensor::client
