#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/client/options.hpp>
#include <shared_tensor/detail/call.hpp>

#include "client/local/tensor_ports.hpp"
#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::client {

class OutgoingPort;

/// A request to the server: a call, a notification, or a batch of both. Holds the arguments' tensors by reference. May
/// be sent repeatedly. Belongs to one thread at a time.
class Outgoing {
public:
    enum class Form { single, batch };
    /// The first call gets the id `first_id`, each further call the next number. `ports` must outlive the request.
    /// `require` is CallOptions::require.
    Outgoing(Form form, std::uint64_t first_id, const TensorPorts& ports, std::string require = {});
    Outgoing(Outgoing&&) noexcept;
    ~Outgoing();

    /// Appends a call and returns its id. `meta` is the request's member "meta", null for none. Throws
    /// TransportNotPossible for a tensor that cannot cross as required.
    std::uint64_t call(std::string_view method, const CallArguments& arguments, json_rpc::Json meta = nullptr);
    void notify(std::string_view method, const CallArguments& arguments);

    /// Completes the request: nothing may be added afterwards.
    void finish();

    bool is_batch() const { return form_ == Form::batch; }
    bool wants_answer() const { return calls_ > 0; }
    std::size_t size() const { return items_; }
    /// The id of a single call, or of the first call of a batch.
    std::uint64_t first_id() const { return first_id_; }
    /// The method of a single request, for error texts; empty for a batch.
    const std::string& method() const { return method_; }

    /// Called when the server has read the request.
    void answered() const noexcept;
    /// The session in whose shared memory a tensor of the request lies; empty if no tensor does.
    std::string memory() const;

    std::string_view content_type() const;
    /// Writes the same single call again: its tensors use the transports that are possible now. Throws as call() does.
    Outgoing again() const;
    /// Bytes that were copied for the tensors of the request.
    std::uint64_t copied() const;
    bool has_tensors() const { return written_ != nullptr; }

    /// The whole body. Its parts view and share memory of the request, so an abandoned try does not disturb later
    /// tries.
    std::vector<BodyPart> body() const;

private:
    struct Written;
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
    std::vector<ObjectPointer> objects_;  // their handles are in the request
};

}  // namespace shared_tensor::client
