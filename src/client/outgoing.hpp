#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/client_options.hpp>
#include <shared_tensor/detail/call.hpp>

#include "client/tensor_ports.hpp"
#include "json_rpc/json.hpp"

namespace shared_tensor::client {

class OutgoingPort;

/// One request being made: a call, a notification, or a batch of both. Holds the arguments' tensors by reference and
/// may be sent again and again. Belongs to one thread at a time.
class Outgoing {
public:
    enum class Form { single, batch };
    /// Ids count up from `first_id`. `ports` must outlive it. `require` is that of CallOptions.
    Outgoing(Form form, std::uint64_t first_id, const TensorPorts& ports, std::string require = {});
    Outgoing(Outgoing&&) noexcept;
    ~Outgoing();

    /// Writes a call; its id. Throws TransportNotPossible for a tensor that cannot go as it is required to. `meta` is
    /// the request's own member of that name, null for none.
    std::uint64_t call(std::string_view method, const CallArguments& arguments, json_rpc::Json meta = nullptr);
    void notify(std::string_view method, const CallArguments& arguments);

    /// The end: nothing may be added after it.
    void finish();

    bool is_batch() const { return form_ == Form::batch; }
    bool wants_answer() const { return calls_ > 0; }
    std::size_t size() const { return items_; }
    /// Of a single call; of the first call of a batch.
    std::uint64_t first_id() const { return first_id_; }
    /// For messages: the only call's, empty for a batch.
    const std::string& method() const { return method_; }

    /// The server has read it.
    void answered() const noexcept;
    /// The session in whose memory a tensor of it lies; empty where none does.
    std::string memory() const;

    std::string_view content_type() const;
    /// The same single call, written anew: its tensors go as they would go now. Throws as call() does.
    Outgoing again() const;
    /// Bytes that were copied for its tensors.
    std::uint64_t copied() const;
    bool has_tensors() const { return written_ != nullptr; }

    /// The whole body, viewing what is kept here: shared, so a try that is given up harms no later one.
    std::vector<BodyPart> body() const;

private:
    struct Written;
    Outgoing(Form form, std::uint64_t first_id, std::unique_ptr<OutgoingPort> port);
    void print(const Written& item);
    void append(std::string_view method, const CallArguments& arguments, std::optional<json_rpc::Json> id,
                json_rpc::Json meta);

    Form form_;
    std::uint64_t first_id_;
    std::size_t items_ = 0, calls_ = 0;
    std::string method_;
    std::string text_;
    std::unique_ptr<OutgoingPort> port_;
    std::shared_ptr<const Written> written_;  // a single call with tensors
    std::shared_ptr<const std::string> head_;
    std::vector<ObjectPointer> objects_;  // whose handles it names
};

}  // namespace shared_tensor::client
