#include "client/call/batch_state.hpp"

#include <shared_tensor/client/batch.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "client/call/failure.hpp"

namespace shared_tensor::client {

namespace {

constexpr std::uint64_t kIds = 1 << 20;  // more than any server accepts in one batch

json_rpc::Json meta_of(const CallOptions& options) {
    json_rpc::Json meta;
    // Servers reject other values, and with them the item.
    if (options.timeout) meta["timeout_ms"] = std::clamp<std::int64_t>(options.timeout->count(), 1, 86'400'000);
    if (!options.idempotency_key.empty()) meta["idempotency_key"] = options.idempotency_key;
    if (!options.require.empty()) meta["require"] = options.require;
    if (!options.session.empty()) meta["session"] = options.session;
    return meta;
}

}  // namespace

BatchState::BatchState(std::shared_ptr<Core> core, CallOptions options)
    : core_(std::move(core)),
      options_(std::move(options)),
      request_(core_->compose(Outgoing::Form::batch, kIds, options_)) {
    options_.idempotency_key.clear();
}

std::size_t BatchState::append(std::string_view method, const CallArguments& arguments, const CallOptions& options) {
    require_open();
    items_.push_back({request_.call(method, arguments, meta_of(options)), std::string(method)});
    return items_.size() - 1;
}

void BatchState::append_notification(std::string_view method, const CallArguments& arguments) {
    require_open();
    request_.notify(method, arguments);
}

/// In a forked child the batch may name memory of the parent, and its items are results of the parent.
void BatchState::check_process() const {
    if (!process_.is_here()) throw_of_parent("this batch", "make another one here by Client::batch()");
}

void BatchState::require_open() const {
    check_process();
    if (sent_) throw std::logic_error("Batch: it was sent already; make another one by Client::batch()");
}

void BatchState::send(Receipt* receipt) {
    require_open();
    sent_ = true;
    if (receipt != nullptr) *receipt = {};
    if (request_.size() == 0) return;  // the protocol has no empty batch
    request_.finish();
    answer_ = core_->send(request_, options_, receipt);
}

void BatchState::result(std::size_t index, detail::ResultSlot& slot) const {
    check_process();
    if (!answer_) {
        throw std::logic_error(sent_ ? "BatchItem: the batch failed as a whole; its send() threw the reason"
                                     : "BatchItem: send() the batch before its results are read");
    }
    answer_->result(items_.at(index).id, items_.at(index).method, slot);
}

}  // namespace shared_tensor::client

namespace shared_tensor {

namespace client {
void read_item(const BatchState& state, std::size_t index, detail::ResultSlot& result) { state.result(index, result); }
std::uint64_t item_id(const BatchState& state, std::size_t index) { return state.id(index); }
}  // namespace client

std::size_t Batch::size() const { return state_->size(); }
void Batch::send() { state_->send(); }
void Batch::send(Receipt& receipt) { state_->send(&receipt); }
std::size_t Batch::append(std::string_view method, const CallArguments& arguments, const CallOptions& options) {
    return state_->append(method, arguments, options);
}
void Batch::append_notification(std::string_view method, const CallArguments& arguments) {
    state_->append_notification(method, arguments);
}

}  // namespace shared_tensor
