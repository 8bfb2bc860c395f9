# A module is a folder under src/ with one static library, whose CMake file states its arrows: the modules that it may
# include. scripts/check_layers holds every #include against them. All modules are joined in one library, shared_tensor.
#
#   shared_tensor_add_module(codec SOURCES value.cpp ARROWS json_rpc util LINK nlohmann_json::nlohmann_json
#                          [PRIVATE_LINK httplib::httplib])

add_library(shared_tensor_headers INTERFACE)
target_include_directories(shared_tensor_headers INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(shared_tensor_headers INTERFACE cxx_std_20)
set_target_properties(shared_tensor_headers PROPERTIES EXPORT_NAME headers)

function(shared_tensor_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 module "" "" "SOURCES;ARROWS;LINK;PRIVATE_LINK")
  if(module_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "module ${name}: unknown arguments ${module_UNPARSED_ARGUMENTS}")
  endif()
  set(target shared_tensor_${name})
  list(TRANSFORM module_ARROWS PREPEND shared_tensor_ OUTPUT_VARIABLE arrows)
  if(module_SOURCES)
    add_library(${target} STATIC ${module_SOURCES})
    shared_tensor_own_code(${target})
    set(public PUBLIC)
    target_link_libraries(${target} PRIVATE ${module_PRIVATE_LINK})
    set_property(GLOBAL APPEND PROPERTY SHARED_TENSOR_MODULES ${target})
  else()
    add_library(${target} INTERFACE)
    set(public INTERFACE)
  endif()
  target_include_directories(${target} ${public} ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} ${public} shared_tensor_headers ${arrows} ${module_LINK})
  set_property(GLOBAL APPEND PROPERTY SHARED_TENSOR_LINKS ${module_LINK} ${module_PRIVATE_LINK})
endfunction()

# The one library that users link. The modules' object files go in as they are, httplib's too, so nothing but system
# libraries and libtorch is left to find.
function(shared_tensor_join_modules)
  get_property(modules GLOBAL PROPERTY SHARED_TENSOR_MODULES)
  get_property(links GLOBAL PROPERTY SHARED_TENSOR_LINKS)
  list(REMOVE_DUPLICATES links)
  list(TRANSFORM modules REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  if(TARGET httplib AND "httplib::httplib" IN_LIST links)
    list(APPEND objects $<TARGET_OBJECTS:httplib>)
    list(REMOVE_ITEM links httplib::httplib)
    list(APPEND links OpenSSL::SSL OpenSSL::Crypto)
  endif()
  add_library(shared_tensor STATIC ${objects})
  add_library(shared_tensor::shared_tensor ALIAS shared_tensor)
  target_link_libraries(shared_tensor PUBLIC shared_tensor_headers ${links})
  set_target_properties(shared_tensor PROPERTIES LINKER_LANGUAGE CXX)
  list(REMOVE_DUPLICATES links)
  set_property(GLOBAL PROPERTY SHARED_TENSOR_LINKS ${links})
endfunction()
