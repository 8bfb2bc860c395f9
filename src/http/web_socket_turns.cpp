#include "http/web_socket_turns.hpp"

#include <chrono>

namespace shared_tensor::http {

namespace {

constexpr int kTurns = 4;                           // that make it likely that the next one follows
constexpr std::chrono::milliseconds kQuickTurn{1};  // of slower ones the threads that are woken are a small part

}  // namespace

void WebSocketTurns::before_wait(const std::function<bool()>& came) {
    if (socket_ == nullptr || came()) return;
    const std::uint64_t sent = socket_->messages_out(), received = socket_->messages_in();
    const SteadyTime now = real_clock().now();
    const bool is_turn = sent != sent_ && received == received_ + 1 && now - waited_ < kQuickTurn;
    sent_ = sent;
    received_ = received;
    waited_ = now;
    turns_ = is_turn ? turns_ + 1 : 0;
    if (turns_ < kTurns) return socket_->stop_reading_here();
    if (!socket_->read_here(came)) turns_ = 0;
}

}  // namespace shared_tensor::http
