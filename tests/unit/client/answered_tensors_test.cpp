// The tensors of an answer: read without parsing the JSON, fetched another way, or not read.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/call/outgoing.hpp"
#include "protocol/codec/frame.hpp"
#include "scripted.hpp"
#include "support/fake_tensor.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;

namespace {

using Texts = std::vector<std::string>;

/// What became of tensors.
struct Record {
    Texts seen, imported, given_up;
};

/// {"name": "x"} is a tensor of that name, which may have a lease; {"cuda_ipc": ...} cannot be opened; any other tensor
/// is "copy".
class Opens final : public codec::TensorPort {
public:
    explicit Opens(Record& record) : record_(&record) {}
    codec::TensorPointer import(const codec::Json& descriptor) override {
        if (descriptor.contains("cuda_ipc")) throw client::NotOpened{descriptor["lease"], "the driver rejects"};
        record_->imported.push_back(descriptor.value("name", "copy"));
        return std::make_shared<FakeTensor>(record_->imported.back());
    }
    codec::TensorPointer wrap(const TensorRef&) override { throw std::logic_error("a tensor was wrapped"); }
    void describe(const codec::TensorPointer&, json_rpc::LongText&) override {
        throw std::logic_error("a tensor went out");
    }

private:
    Record* const record_;
};

/// Takes {"lease":"..."} for the descriptor of a leased tensor that can be read without the JSON.
class Ports final : public NoPorts {
public:
    explicit Ports(Record& record) : record_(&record) {}
    std::unique_ptr<codec::TensorPort> incoming(std::span<const std::byte>, std::shared_ptr<const void>,
                                                const std::string&) const override {
        return std::make_unique<Opens>(*record_);
    }
    std::optional<client::LeasedTensor> leased(std::string_view descriptor, const std::string&) const override {
        record_->seen.emplace_back(descriptor);
        constexpr std::string_view kStart = R"({"lease":")", kEnd = R"("})";
        if (!descriptor.starts_with(kStart) || !descriptor.ends_with(kEnd)) return std::nullopt;
        descriptor.remove_prefix(kStart.size());
        descriptor.remove_suffix(kEnd.size());
        return client::LeasedTensor{std::string(descriptor), [record = record_, lease = std::string(descriptor)] {
                                        if (lease == "expired") throw TensorExpired(-32005, "Unknown", "", "gone");
                                        if (lease == "wrong") throw InvalidValue("shm.offset", "1", "2");
                                        record->imported.push_back(lease);
                                        return std::make_shared<FakeTensor>(lease);
                                    }};
    }
    void abandon(const Texts& leases) const override {
        record_->given_up.insert(record_->given_up.end(), leases.begin(), leases.end());
    }

private:
    Record* const record_;
};

/// The name of a tensor that is read twice.
struct NameOf final : detail::ResultSlot {
    void read(const ValueReader& value) override {
        value.require(Kind::tensor, "tensor");
        name = name_in(value.tensor());
        CHECK(name_in(value.tensor()) == name);
    }
    std::string name;
};

struct Answered {
    explicit Answered(std::vector<Reply> script)
        : client(std::move(script), options_for_tests(), std::make_unique<Ports>(record)) {}
    explicit Answered(std::string text) : Answered(std::vector{says(200, std::move(text))}) {}
    std::string name(const CallOptions& options = {}) {
        NameOf slot;
        client.core.call("f", detail::ArgumentsOf<>(), slot, options);
        return slot.name;
    }

    Record record;
    ScriptedClient client;
};

/// A result in memory of a device.
net::ClientResponse by_device(const net::ClientRequest& request) {
    auto response = gives({{"$tensor", {{"lease", "l-1"}, {"cuda_ipc", Json::object()}}}})(request);
    response.headers.add("Shared-Tensor-Transport", "cuda_ipc;tensors=1;copied=0");
    return response;
}
const Reply kCopy = gives({{"$tensor", {{"body", {{"offset", 0}, {"size", 4}}}}}});

std::string whole_answer(const std::string& descriptor) {
    return R"({"jsonrpc":"2.0","result":{"$tensor":)" + descriptor + R"(},"id":1})";
}
const std::string kLeased = whole_answer(R"({"lease":"l-1"})");

}  // namespace

TEST_CASE("A tensor in an answer's bytes keeps them, and is rejected only if it is read and does not lie in them",
          "[client]") {
    std::weak_ptr<PooledBuffer> body;
    const auto answers = [&](std::string_view tensors) -> Reply {
        const std::string json =
            whole_answer(R"({"dtype":"float32","shape":[2],"device":"cpu","body":{"offset":0,"size":8}})");
        return [&body, frame = codec::frame_head(json) + std::string(tensors)](const net::ClientRequest&) {
            auto response = answer(200, frame, std::string(codec::kFrameContentType));
            body = response.body;
            return response;
        };
    };
    const auto result = [&](std::string_view tensors, auto of_type) {
        return ScriptedClient({answers(tensors)}, options_for_tests(), client::tensor_ports("", ""))
            .call<decltype(of_type)>("f");
    };
    const float values[] = {1.5F, -2.0F};
    const std::string_view bytes(reinterpret_cast<const char*>(values), sizeof values);
    {
        const auto read = result(bytes, TensorRef());
        CHECK(elements_of<float>(read) == std::vector{1.5F, -2.0F});
        CHECK_FALSE(body.expired());
    }
    CHECK(body.expired());
    CHECK_THROWS_AS(result(bytes.substr(4), TensorRef()), ResultMismatch);
    CHECK_THROWS_AS(result(bytes, 1.0), ResultMismatch);
    ScriptedClient not_asked({answers("1234")}, options_for_tests(), client::tensor_ports("", ""));
    CHECK_NOTHROW(not_asked.call<void>("f"));
}

TEST_CASE("A request sends its tensors from their own memory, and keeps them until it is sent for the last time",
          "[client]") {
    const auto ports = client::tensor_ports("", "");
    TensorRef a = arange<float>({6}), b = arange<float>({3});
    client::Outgoing request(client::Outgoing::Form::batch, 1, *ports);
    request.call("f", detail::ArgumentsOf(a));
    request.call("g", detail::ArgumentsOf(b));
    request.finish();
    const auto bytes = [&] {
        net::ClientRequest sent;
        sent.parts = request.body();
        return body_of(sent);
    };
    const std::string before = bytes();
    for (TensorRef* tensor : {&a, &b}) {
        const auto parts = request.body();
        CHECK(std::ranges::any_of(parts, [&](const auto& part) { return part.bytes.data() == tensor->data(); }));
        *tensor = {};
    }
    CHECK(bytes() == before);
    CHECK(Json::parse(codec::split_frame(std::as_bytes(std::span(before))).value().json).size() == 2);
}

TEST_CASE("A result that cannot be opened is asked for by its lease, once, and the lease given up", "[client]") {
    Answered copied({by_device, kCopy}), never({by_device});
    CHECK(copied.name() == "copy");
    const auto requests = copied.client.sender->requests();
    REQUIRE(requests.size() == 2);
    CHECK(json_of(requests[1])["method"] == "lease.get");
    CHECK(json_of(requests[1])["params"]["lease"] == "l-1");
    CHECK(requests[1].headers.find("Shared-Tensor-Require") == "shm, body");
    CHECK(copied.record.given_up == Texts{"l-1"});
    CHECK_THROWS_AS(never.name(), ResultMismatch);
    CHECK(never.client.tries() == 2);
}

TEST_CASE("A result that cannot be had in another way does not look as if nothing had run", "[client]") {
    CHECK_THROWS_AS(Answered({by_device, rejects(-32005)}).name(), TensorExpired);
    for (const Reply& reply : {is_not_there(), rejects(-32009), rejects(-32001)})
        CHECK(thrown_by<TransportFailure>([&] { Answered({by_device, reply}).name(); }).may_have_run());
}

TEST_CASE("What a call requires holds for the second way too", "[client]") {
    Answered one({by_device, kCopy}), two({by_device, kCopy});
    CHECK_THROWS_AS(one.name({.require = "cuda_ipc"}), TransportNotPossible);
    CHECK(one.client.tries() == 1);
    CHECK(two.name({.require = "cuda_ipc, body"}) == "copy");
    CHECK(two.client.sender->requests()[1].headers.find("Shared-Tensor-Require") == "body");
}

TEST_CASE("A leased tensor that is the whole result is read without its JSON, and once", "[client]") {
    Answered answered(kLeased);
    CHECK(answered.name() == "l-1");
    CHECK(answered.record.seen == Texts{R"({"lease":"l-1"})"});
    CHECK(answered.record.imported == Texts{"l-1"});
    CHECK(answered.record.given_up.empty());
}

TEST_CASE("Why a leased tensor cannot be read is said as for any other", "[client]") {
    Answered expired(whole_answer(R"({"lease":"expired"})")), wrong(whole_answer(R"({"lease":"wrong"})"));
    CHECK_THROWS_AS(expired.name(), TensorExpired);
    CHECK_THROWS_AS(wrong.name(), ResultMismatch);
    CHECK(expired.client.tries() == 1);
    CHECK(wrong.client.tries() == 1);
}

TEST_CASE("What is no leased tensor alone is read as JSON", "[client]") {
    Answered another(whole_answer(R"({"name":"x"})"));
    CHECK(another.name() == "x");
    CHECK(another.record.seen == Texts{R"({"name":"x"})"});
    Answered of_another_server(R"({"id":1, "jsonrpc":"2.0", "result":{"$tensor":{"name":"x"}}})");
    CHECK(of_another_server.name() == "x");
    CHECK(of_another_server.record.seen.empty());
    Answered foreign(R"({"jsonrpc":"2.0","result":{"$tensor":{"lease":"l-1"}},"id":7})");
    CHECK_THROWS_AS(foreign.name(), TransportFailure);
    CHECK(foreign.record.seen.empty());
    CHECK_THROWS_AS(Answered(whole_answer(R"({"lease":)")).name(), TransportFailure);
}
