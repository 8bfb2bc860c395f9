// Tensors in messages: which transport takes them, what is copied, what is counted and how long memory is kept.

#include <catch2/catch_test_macros.hpp>
#include <new>
#include <thread>

#include <shared_tensor/simulated.hpp>
#include <shared_tensor/value.hpp>

#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;
using enum TransportKind;

namespace {

using Kinds = std::vector<TransportKind>;

ExportPolicy requiring(Kinds transports, Kinds accept = {}) {
    ExportPolicy policy = accepting(std::move(accept));
    policy.require = std::move(transports);
    return policy;
}

/// The transport that a tensor of so many bytes takes.
std::string transport_of(std::int64_t bytes, ExportPolicy policy) {
    TensorTransfer transfer({}, std::move(policy));
    const Json json = transfer.describe(transfer.wrap(zeros(DType::uint8, {bytes})));
    for (const TransportKind transport : kTransportKinds) {
        if (json.contains(name_of(transport))) return std::string(name_of(transport));
    }
    return "none";
}

tensor::TransportNotPossible::Reasons reasons(ExportPolicy policy, const TensorRef& tensor) {
    TensorTransfer transfer({}, std::move(policy));
    try {
        transfer.describe(transfer.wrap(tensor));
    } catch (const tensor::TransportNotPossible& error) {
        return error.reasons();
    }
    return {};
}

/// Bytes that were received, and the message whose body they are.
struct Received {
    explicit Received(std::string_view text)
        : body(std::make_shared<std::vector<char>>(text.begin(), text.end())),
          transfer({std::as_bytes(std::span(*body)), body}) {}
    TensorRef read(const char* dtype, const char* shape, std::size_t offset, std::size_t size, const char* more = "") {
        return transfer
            .import(Json::parse("{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":" + shape + more +
                                ",\"body\":{\"offset\":" + std::to_string(offset) +
                                ",\"size\":" + std::to_string(size) + "}}"))
            ->tensor();
    }
    const std::byte* at(std::size_t offset) const { return reinterpret_cast<const std::byte*>(body->data()) + offset; }

    std::shared_ptr<std::vector<char>> body;
    TensorTransfer transfer;
};

}  // namespace

TEST_CASE("a list of transports keeps their order, drops repetitions and gives unknown words apart", "[tensor]") {
    for (const TransportKind transport : kTransportKinds)
        CHECK(parse_transport(name_of(transport)) == transport);
    CHECK_FALSE(parse_transport("Body"));
    const TransportList requested = parse_transports(" shm ,body,, rdma,\tshm , rdma, data");
    CHECK(requested.transports == Kinds{shm, body, data});
    CHECK(requested.unknown == std::vector<std::string>{"rdma"});
    CHECK(join(requested.transports) == "shm, body, data");
    for (const auto* list : {"", " ", ",", " , "}) {
        CHECK(parse_transports(list).transports.empty());
        CHECK(parse_transports(list).unknown.empty());
    }
}

TEST_CASE(
    "a tensor takes the required transport, else the first accepted one whose bound it keeps, else the most "
    "compact one",
    "[tensor]") {
    ExportPolicy bounded = accepting({data, base64, body});
    bounded.data_max_elements = 2;
    bounded.base64_max_bytes = 4;
    ExportPolicy few = accepting({data, base64});
    few.data_max_elements = 1000;
    few.most_data_elements = 10;
    struct Row {
        std::int64_t bytes;
        ExportPolicy policy;
        const char* transport;
    };
    const Row rows[] = {
        // a reader that says nothing gets lists up to 64 elements, and base64 of any size above
        {64, {}, "data"},
        {65, {}, "base64"},
        {1 << 20, {}, "base64"},
        {10, accepting({body, data}), "body"},
        {10, accepting({data, body}), "data"},
        {100, accepting({data, base64, body}), "base64"},
        {100'000, accepting({data, base64, body}), "body"},
        // beyond all bounds, in whatever order
        {100'000, accepting({data, base64}), "base64"},
        {100'000, accepting({base64, data}), "base64"},
        {100'000, accepting({data}), "data"},
        // the bounds are options
        {2, bounded, "data"},
        {3, bounded, "base64"},
        {5, bounded, "body"},
        {10, few, "data"},
        {11, few, "base64"},
        // what is not there is passed over
        {10, accepting({cuda_ipc, shm, body}), "body"},
        {10, requiring({body}, {data, body}), "body"},
        {10, requiring({shm, base64}, {data}), "base64"},
    };
    for (const Row& row : rows) {
        INFO(row.bytes << " bytes by " << row.transport);
        CHECK(transport_of(row.bytes, row.policy) == row.transport);
    }
    few.accept = {data};
    CHECK(transport_of(10, few) == "data");
    TensorTransfer transfer({}, few);
    CHECK_THROWS_AS(transfer.describe(transfer.wrap(zeros(DType::float32, {11}))), TooManyElements);
    CHECK(transfer.summary().empty());
}

TEST_CASE("where no transport is possible the reason of each is told", "[tensor]") {
    const TensorRef one = zeros(DType::float32, {1}), packed = zeros(DType::float4_e2m1fn_x2, {4});
    auto why = reasons(accepting({cuda_ipc, shm}), one);
    REQUIRE(why.size() == 2);
    CHECK(why[0] == std::pair{cuda_ipc, std::string("it is not built in")});
    CHECK(why[1].first == shm);
    why = reasons(requiring({shm}, {body}), one);  // although another could be had
    REQUIRE(why.size() == 1);
    CHECK(why[0].first == shm);
    CHECK(send(packed, {}).summary == "base64;tensors=1;copied=4");
    why = reasons(requiring({data}), packed);
    REQUIRE(why.size() == 1);
    CHECK(why[0].second == "float4_e2m1fn_x2 has two values in a byte and no form as lists");
    const tensor::TransportNotPossible error({{shm, "no channel"}, {cuda_ipc, "no GPU"}});
    CHECK(error.what() == std::string("no transport can carry the tensor: shm: no channel; cuda_ipc: no GPU"));
}

TEST_CASE("the summary counts the tensors that crossed, by transport, and items may have policies of their own",
          "[tensor]") {
    TensorTransfer transfer({}, accepting({body}));
    const auto wrapped = transfer.wrap(zeros(DType::float32, {1}));
    CHECK(transfer.summary().empty());
    const auto in = transfer.import(Json::parse(R"({"dtype":"float32","data":[1,2]})"));
    transfer.describe(in);
    transfer.describe(in);
    CHECK(transfer.summary() == "data;tensors=1;copied=8, body;tensors=2;copied=0");
    transfer.set_policy(accepting({data}));
    CHECK(transfer.describe(wrapped).contains("data"));
}

TEST_CASE("a tensor in the body is a view of the received bytes, which it keeps alive", "[tensor]") {
    Received message(bytes_of(arange<float>({16})));
    const TensorRef plain = message.read("float32", "[2,3]", 16, 24);
    CHECK(plain.data() == message.at(16));
    const TensorRef turned = message.read("float32", "[3,2]", 0, 24, ",\"strides\":[1,3]");
    CHECK(turned.data() == message.at(0));
    CHECK(identical(turned, transposed(arange<float>({2, 3}))));
    CHECK(message.transfer.summary() == "body;tensors=2;copied=0");
    TensorRef view;
    {
        Received other(bytes_of(arange<float>({16})));
        view = other.read("float32", "[16]", 0, 64).select(3);
        const std::weak_ptr<std::vector<char>> seen = other.body;
        other = Received("");
        CHECK_FALSE(seen.expired());
        CHECK(elements_of<float>(view) == std::vector{3.0F});
        view = {};
        CHECK(seen.expired());
    }
}

TEST_CASE("bytes that are not aligned to the item size are copied once, and counted", "[tensor]") {
    Received message('x' + bytes_of(arange<double>({4})) + "padding");
    CHECK(identical(message.read("float64", "[4]", 1, 32), arange<double>({4})));
    CHECK(message.transfer.summary() == "body;tensors=1;copied=32");
    CHECK(identical(message.read("float64", "[2]", 1, 32, ",\"strides\":[2]"), tensor_of<double>({0, 2})));
    CHECK(message.transfer.summary() == "body;tensors=2;copied=48");
}

TEST_CASE("bools other than 0 and 1 are rejected, unless they lie between the elements", "[tensor]") {
    Received message({"\1\7\0\1", 4});
    CHECK_THROWS_AS(message.read("bool", "[3]", 0, 3), InvalidValue);
    CHECK_NOTHROW(message.read("bool", "[2]", 2, 2));
    CHECK_NOTHROW(message.read("bool", "[2]", 0, 3, ",\"strides\":[2]"));
    CHECK_THROWS_AS(message.read("bool", "[2]", 0, 3, ",\"strides\":[1]"), InvalidValue);
}

TEST_CASE("contiguous tensors and cuts leave by body from where they lie; others are copied, and counted", "[tensor]") {
    const TensorRef tensor = arange<float>({10, 5});
    const auto parts_of = [](const TensorRef& sent, const std::string& summary) {
        TensorTransfer transfer({}, only(body));
        const Json json = transfer.describe(transfer.wrap(sent));
        CHECK(json["body"] == Json{{"offset", 0}, {"size", sent.bytes()}});
        CHECK(transfer.summary() == "body;tensors=1;copied=" + summary);
        REQUIRE(transfer.body().parts().size() == 1);
        return transfer.body().parts();  // the bytes live as long as these
    };
    CHECK(parts_of(tensor, "0")[0].bytes.data() == tensor.data());
    CHECK(parts_of(tensor.slice(2, 7), "0")[0].bytes.data() == tensor.slice(2, 7).data());
    CHECK(parts_of(transposed(tensor), "200")[0].bytes.size() == 200);
    const auto kept = parts_of(tensor_of(std::vector<std::uint8_t>(64, 7)), "0");
    for (const std::byte byte : kept.at(0).bytes)
        REQUIRE(byte == std::byte{7});
}

TEST_CASE("each tensor of a body begins at a multiple of 64 bytes", "[tensor]") {
    TensorTransfer transfer({}, only(body));
    const Json first = transfer.describe(transfer.wrap(zeros(DType::uint8, {3})));
    const Json empty = transfer.describe(transfer.wrap(zeros(DType::uint8, {0})));
    const Json second = transfer.describe(transfer.wrap(zeros(DType::float32, {2})));
    CHECK(first["body"]["offset"] == 0);
    CHECK(empty["body"]["size"] == 0);
    CHECK(second["body"]["offset"] == 64);
    CHECK(transfer.body().size() == 72);
    std::size_t bytes = 0;
    for (const BodyPart& part : transfer.body().parts())
        bytes += part.bytes.size();
    CHECK(bytes == 72);
}

TEST_CASE("a large tensor is printed in pieces, and reads back the same whatever its strides and device", "[tensor]") {
    simulated::enable(1);
    const TensorRef plain = arange<float>({1'000'001});  // its base64 ends with a padding
    const TensorRef across = transposed(arange<float>({999, 1000}));
    for (const TransportKind transport : {base64, data}) {
        for (const TensorRef& tensor : {plain, across, simulated::to_device(plain)}) {
            const bool same = identical(receive(send(tensor, only(transport))), tensor);
            CHECK(same);
        }
    }
}

TEST_CASE("base64 beyond the limit of its text is rejected before a byte of it is written", "[tensor]") {
    TensorTransfer transfer({}, only(base64));
    json_rpc::LongText text;
    text.set_limit(1000);
    CHECK_THROWS_AS(transfer.describe(transfer.wrap(zeros(DType::float32, {1000})), text), json_rpc::TextTooLong);
    CHECK(text.take_whole().ends_with(R"("base64":)"));
}

TEST_CASE("tensors are wrapped by other threads while one describes", "[tensor]") {
    TensorTransfer transfer({}, accepting({body}));
    const TensorRef tensor = arange<float>({10});
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < 1000; ++k)
                transfer.wrap(tensor);
        });
    }
    for (int k = 0; k < 1000; ++k)
        transfer.describe(transfer.wrap(tensor));
    threads.clear();
    CHECK(transfer.summary() == "body;tensors=1000;copied=0");
}

TEST_CASE("a handle counts the bytes of its elements, not of the memory that they are a part of", "[tensor]") {
    CHECK(make_handle(zeros(DType::float32, {1000, 1000}).select(3))->bytes() == 4000);
    CHECK(make_handle(strided(zeros(DType::float32, {1}), {7}, {0}))->bytes() == 28);
    CHECK(make_handle(zeros(DType::float32, {}))->bytes() == 4);
    CHECK(make_handle(zeros(DType::float32, {0, 5}))->bytes() == 0);
    CHECK_FALSE(make_handle(zeros(DType::float32, {1}))->on_device());
    CHECK_THROWS_AS(make_handle(TensorRef()), InvalidValue);
}

TEST_CASE("keys and digests are equal for equal dtype, shape and elements, however they lie in memory", "[tensor]") {
    const auto key_of = [](const TensorRef& tensor) {
        std::string key;
        REQUIRE(make_handle(tensor)->append_key(key));
        return key;
    };
    const auto digest_of = [](const TensorRef& tensor) {
        std::string digest;
        make_handle(tensor)->append_digest(digest);
        return digest;
    };
    const auto check = [](const auto& text_of) {
        const TensorRef tensor = arange<float>({2, 3});
        CHECK(text_of(tensor) == text_of(arange<float>({2, 3})));
        CHECK(text_of(tensor) == text_of(transposed(tensor_of<float>({0, 3, 1, 4, 2, 5}, {3, 2}))));
        CHECK(text_of(tensor) != text_of(strided(tensor, {3, 2})));
        CHECK(text_of(tensor) != text_of({tensor.mutable_data(), DType::int32, {2, 3}, {}, {}, tensor.owner()}));
        CHECK(text_of(tensor) != text_of(tensor_of<float>({0, 1, 2, 3, 4, 6}, {2, 3})));
        CHECK(text_of(tensor_of<float>({0})) != text_of(tensor_of<float>({-0.0F})));
    };
    check(key_of);
    check(digest_of);
    // Above a mebibyte there is no key, but a short digest of every byte.
    CHECK_FALSE(key_of(zeros(DType::uint8, {1 << 20})).empty());
    const TensorRef large = zeros(DType::uint8, {(1 << 20) + 1});
    std::string none;
    CHECK_FALSE(make_handle(large)->append_key(none));
    CHECK(none.empty());
    const std::string before = digest_of(large);
    CHECK(before.size() < 100);
    large.mutable_data()[12345] = std::byte{1};
    CHECK(digest_of(large) != before);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process where memory runs out
TEST_CASE("no memory is std::bad_alloc", "[tensor]") {
    CHECK_THROWS_AS(allocate(DType::uint8, Shape{std::int64_t{1} << 50}), std::bad_alloc);
}
#endif
