/* translate MODEL.onnx < lines.txt: translate token ids with one graph of `onnxmt export --layout single`.
 *
 * Each line of the input holds the ids of one sentence; each line of the output those of its translation. A second
 * argument is the most tokens of an output (max_new_tokens), which may be left out.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <onnxruntime_c_api.h>

enum { LONGEST_LINE = 1 << 16, MOST_TOKENS = 4096 };

static const OrtApi* ort;

static void check(OrtStatus* status) {
  if (status == NULL) return;
  fprintf(stderr, "onnxruntime: %s\n", ort->GetErrorMessage(status));
  ort->ReleaseStatus(status);
  exit(1);
}

static OrtValue* tensor(const OrtMemoryInfo* memory, int64_t* values, const int64_t* shape, size_t axes) {
  size_t count = 1;
  for (size_t axis = 0; axis < axes; axis++) count *= (size_t)shape[axis];
  OrtValue* made = NULL;
  check(ort->CreateTensorWithDataAsOrtValue(memory, values, count * sizeof(int64_t), shape, axes,
                                            ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, &made));
  return made;
}

/* Read the ids of one line; returns how many there are. */
static size_t read_ids(char* line, int64_t* ids) {
  size_t count = 0;
  for (char* at = line;; count++) {
    char* end = at;
    const int64_t id = strtoll(at, &end, 10);
    if (end == at) return count;
    if (count == MOST_TOKENS) {
      fprintf(stderr, "a line holds more than %d ids\n", MOST_TOKENS);
      exit(1);
    }
    ids[count] = id;
    at = end;
  }
}

static void translate(OrtSession* session, const OrtMemoryInfo* memory, int64_t* ids, size_t count, int64_t most) {
  static const char* const input_names[] = {"input_ids", "attention_mask", "max_new_tokens"};
  static const char* const output_names[] = {"output_ids", "output_lengths"};
  static int64_t mask[MOST_TOKENS];
  for (size_t place = 0; place < count; place++) mask[place] = 1; /* a batch of one has no padding */
  const int64_t shape[] = {1, (int64_t)count}, single[] = {1};
  OrtValue* inputs[] = {tensor(memory, ids, shape, 2), tensor(memory, mask, shape, 2), tensor(memory, &most, single, 1)};
  OrtValue* outputs[] = {NULL, NULL};
  const size_t given = most > 0 ? 3 : 2;
  check(ort->Run(session, NULL, input_names, (const OrtValue* const*)inputs, given, output_names, 2, outputs));
  int64_t* found[2];
  for (int place = 0; place < 2; place++) check(ort->GetTensorMutableData(outputs[place], (void**)&found[place]));
  for (int64_t place = 0; place < found[1][0]; place++) printf("%s%" PRId64, place ? " " : "", found[0][place]);
  putchar('\n');
  for (int place = 0; place < 3; place++) ort->ReleaseValue(inputs[place]);
  for (int place = 0; place < 2; place++) ort->ReleaseValue(outputs[place]);
}

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    fprintf(stderr, "usage: translate MODEL.onnx [MAX_NEW_TOKENS] < lines.txt\n");
    return 2;
  }
  const int64_t most = argc == 3 ? strtoll(argv[2], NULL, 10) : 0;
  ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  if (ort == NULL) {
    fprintf(stderr, "the library is older than the header, which is of API version %d\n", ORT_API_VERSION);
    return 1;
  }
  OrtEnv* environment = NULL;
  OrtSessionOptions* options = NULL;
  OrtSession* session = NULL;
  OrtMemoryInfo* memory = NULL;
  /* ORT_LOGGING_LEVEL_ERROR: it warns of each input that may be left out, which max_new_tokens is. */
  check(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "translate", &environment));
  check(ort->CreateSessionOptions(&options));
  check(ort->CreateSession(environment, argv[1], options, &session));
  check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));

  static char line[LONGEST_LINE];
  static int64_t ids[MOST_TOKENS];
  while (fgets(line, sizeof line, stdin) != NULL) {
    const size_t count = read_ids(line, ids);
    if (count > 0) translate(session, memory, ids, count, most);
  }
  ort->ReleaseMemoryInfo(memory);
  ort->ReleaseSession(session);
  ort->ReleaseSessionOptions(options);
  ort->ReleaseEnv(environment);
  return 0;
}
