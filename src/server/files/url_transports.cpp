#include "server/files/url_transports.hpp"

#include <utility>
#include <variant>

#include <shared_tensor/value.hpp>

#include "server/files/tensor_endpoint.hpp"

namespace shared_tensor::server {

class UrlTransports::Url final : public tensor::Transport {
public:
    Url(runtime::LeaseTable& leases, runtime::LeaseHolder lease_holder)
        : leases_(&leases), lease_holder_(std::move(lease_holder)) {}

    tensor::TransportKind kind() const override { return tensor::TransportKind::url; }
    /// Device memory is scarce: it is not kept for a client that may never fetch it.
    tensor::Viability fits(const codec::TensorHandle& tensor) const override {
        return {tensor.on_device() ? "the tensor lies in device memory, which is not kept for later" : ""};
    }
    tensor::Imported import(const tensor::Descriptor&, const tensor::Incoming&) const override {
        throw InvalidValue("url", "a tensor that is sent, or {\"$ref\": lease} for one that is here", "a url");
    }
    tensor::Exported export_to(const codec::TensorPointer& tensor, tensor::OutgoingBody&) const override {
        auto granted = leases_->grant(lease_holder_, tensor::name_of(tensor::TransportKind::url), tensor->bytes(),
                                      {tensor, [](bool) {}});  // its readers get copies, and map no memory
        if (auto* rejected = std::get_if<runtime::LeaseTable::Rejected>(&granted))
            throw tensor::CannotLend(std::move(rejected->reason));
        tensor::Exported exported;
        exported.lent.lease = std::move(std::get<std::string>(granted));
        exported.content.append("\"").append(TensorEndpoint::kPrefix).append(exported.lent.lease).append("\"");
        return exported;
    }

private:
    runtime::LeaseTable* const leases_;
    const runtime::LeaseHolder lease_holder_;
};

UrlTransports::UrlTransports(const tensor::Transports& others, runtime::LeaseTable& leases,
                             runtime::LeaseHolder lease_holder)
    : url_(std::make_unique<Url>(leases, std::move(lease_holder))), transports_(others.with(*url_)) {}

std::string url_lease_holder(std::string_view principal, std::string_view session) {
    return std::string("@").append(session.empty() ? principal : session);
}

}  // namespace shared_tensor::server
