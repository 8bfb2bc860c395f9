#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string_view>

#include <shared_tensor/client/options.hpp>
#include <shared_tensor/detail/call.hpp>

namespace shared_tensor {

class Client;

namespace client {
class BatchState;
void read_item(const BatchState& state, std::size_t index, detail::ResultSlot& result);
std::uint64_t item_id(const BatchState& state, std::size_t index);
}  // namespace client

/// The answer to one call of a batch. Keeps the batch's answers alive. It can be an argument of a later call of the
/// same batch: the server then passes the result itself.
template <class R>
class BatchItem {
public:
    /// Returns the result. Throws the item's own error (a child of RpcError), or std::logic_error before Batch::send().
    /// Each call returns the same tensors in shared memory; they are kept until the batch and its items are destroyed.
    R get() const {
        detail::ResultOf<R> result;
        client::read_item(*state_, index_, result);
        return result.take();
    }

    friend void write_reference(ValueWriter writer, const BatchItem& item) {
        writer.reference_to_item(client::item_id(*item.state_, item.index_));
    }

private:
    friend class Batch;
    BatchItem(std::shared_ptr<client::BatchState> state, std::size_t index) : state_(std::move(state)), index_(index) {}

    std::shared_ptr<client::BatchState> state_;
    std::size_t index_;
};

/// Several calls in one request. The server may run them at once and in any order.
///
///     Batch batch = client.batch();
///     auto sum = batch.add<double>("add", 1, 2);
///     auto names = batch.add<std::vector<std::string>>("names");
///     batch.send();
///     use(sum.get(), names.get());
///
/// An item may be an argument of later items. They run when it has ended, and fail with InputFailed if it failed.
///
///     auto scaled = batch.add<at::Tensor>("scale", x);
///     auto twice = batch.add<at::Tensor>("scale", scaled);
///
/// add() reads the arguments. A batch is repeated as a whole, and only if nothing was sent or the client's options
/// (CallOptions::idempotent) allow that all items run twice. The client's idempotency key does not apply; an item may
/// have its own.
/// Thread safety: one thread at a time may use a batch and its items.
class Batch {
public:
    template <class R = void, class... Args>
    BatchItem<R> add(std::string_view method, const Args&... args) {
        return add_with<R>(CallOptions{}, method, args...);
    }

    /// As add(), with a timeout, an idempotency key or a session for this item.
    template <class R = void, class... Args>
    BatchItem<R> add_with(const CallOptions& options, std::string_view method, const Args&... args) {
        (require_own(args), ...);
        return {state_, append(method, detail::ArgumentsOf<Args...>(args...), options)};
    }

    /// A call without an answer.
    template <class... Args>
    void notify(std::string_view method, const Args&... args) {
        (require_own(args), ...);
        append_notification(method, detail::ArgumentsOf<Args...>(args...));
    }

    std::size_t size() const;

    /// Sends the batch and blocks until all answers are there. Throws if there are no answers: TransportFailure,
    /// DeadlineExceeded, or the server's error for the whole batch. get() throws the errors of single items. Call it at
    /// most once.
    void send();
    /// As send(), and fills in `receipt` for the request, with the sums of all items.
    void send(Receipt& receipt);

private:
    friend class Client;
    explicit Batch(std::shared_ptr<client::BatchState> state) : state_(std::move(state)) {}
    template <class T>
    void require_own(const T&) const {}
    template <class T>
    void require_own(const Named<T>& argument) const {
        require_own(argument.value);
    }
    template <class R>
    void require_own(const BatchItem<R>& item) const {
        if (item.state_ != state_) throw std::logic_error("Batch: an item of another batch is no argument here");
    }
    std::size_t append(std::string_view method, const CallArguments& arguments, const CallOptions& options);
    void append_notification(std::string_view method, const CallArguments& arguments);

    std::shared_ptr<client::BatchState> state_;
};

}  // namespace shared_tensor
