// Command objects reads and writes objects of the Kubernetes API with the types of Kubernetes.
//
//	objects fields    prints the fields of all messages that a Kubernetes API server has to know, see below
//	objects convert   answers one JSON value per line on its input with one on its output:
//	                  {"protobuf": …} and {"frame": …}, in base64, with what they hold, in JSON;
//	                  {"object": …}, in JSON, with its protobuf
//
// A message is printed as its name, and a line for each field: the number, the name in JSON, and the type.
//
//	core/v1.ServicePort
//	 1 name text            left out in JSON if it is empty, and never in protobuf
//	 3 port !int            never left out
//	 6 appProtocol *text    left out if there is none
//	 9 ports []Port         a list
//	 9 labels {}text        by name
//	 9 . Source             its fields are those of the message around it in JSON
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"sort"
	"strings"

	discoverydocs "k8s.io/api/apidiscovery/v2"
	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// What requests and answers hold. Lists have two fields each, metadata and items.
var roots = []any{
	meta.APIGroup{}, meta.APIGroupList{}, meta.APIResourceList{}, meta.APIVersions{},
	meta.DeleteOptions{}, meta.ListMeta{}, meta.PartialObjectMetadata{}, meta.Status{},
	discoverydocs.APIGroupDiscoveryList{},
	core.Binding{}, core.ConfigMap{}, core.Event{}, core.Namespace{}, core.Node{}, core.Pod{}, core.Service{},
	apps.Deployment{}, apps.ReplicaSet{}, autoscaling.Scale{},
	events.Event{}, networking.ServiceCIDR{}, coordination.Lease{}, discovery.EndpointSlice{},
	authentication.SelfSubjectReview{}, authorization.SelfSubjectAccessReview{}, authorization.SelfSubjectRulesReview{},
}

// Types that JSON shows in another form than that of their fields.
var special = map[reflect.Type]string{
	reflect.TypeOf(meta.Time{}):          "Time",
	reflect.TypeOf(meta.MicroTime{}):     "MicroTime",
	reflect.TypeOf(meta.FieldsV1{}):      "FieldsV1",
	reflect.TypeOf(resource.Quantity{}):  "Quantity",
	reflect.TypeOf(intstr.IntOrString{}): "IntOrString",
}

func main() {
	var err error
	switch arguments := strings.Join(os.Args[1:], " "); arguments {
	case "fields":
		err = printFields(os.Stdout)
	case "convert":
		err = convert(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("usage: objects fields|convert")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func printFields(out io.Writer) error {
	messages := map[string]string{}
	for _, root := range roots {
		if err := addMessage(messages, reflect.TypeOf(root)); err != nil {
			return err
		}
	}
	names := make([]string, 0, len(messages))
	for name := range messages {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(out, "%s\n%s", name, messages[name])
	}
	return nil
}

// The last two parts of the package, and the type.
func messageName(message reflect.Type) string {
	parts := strings.Split(message.PkgPath(), "/")
	return strings.Join(parts[len(parts)-2:], "/") + "." + message.Name()
}

func addMessage(messages map[string]string, message reflect.Type) error {
	name := messageName(message)
	if _, known := messages[name]; known {
		return nil
	}
	messages[name] = ""
	fields := map[int]string{}
	numbers := []int{}
	for index := range message.NumField() {
		field := message.Field(index)
		var number int
		if _, err := fmt.Sscanf(tagPart(field.Tag.Get("protobuf"), 1), "%d", &number); err != nil {
			continue
		}
		line, err := fieldType(messages, field)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", name, field.Name, err)
		}
		fields[number] = line
		numbers = append(numbers, number)
	}
	sort.Ints(numbers)
	text := strings.Builder{}
	for _, number := range numbers {
		fmt.Fprintf(&text, " %d %s\n", number, fields[number])
	}
	messages[name] = text.String()
	return nil
}

func tagPart(tag string, index int) string {
	parts := strings.Split(tag, ",")
	if index < len(parts) {
		return parts[index]
	}
	return ""
}

// The name in JSON, and the type.
func fieldType(messages map[string]string, field reflect.StructField) (string, error) {
	tag := field.Tag.Get("json")
	name := tagPart(tag, 0)
	if name == "" {
		name = "."
	}
	one, sign := field.Type, ""
	switch {
	case one == reflect.TypeOf([]byte{}) || isMessage(one) && one.Kind() == reflect.Slice:
		sign = "*"
	case one.Kind() == reflect.Pointer:
		one, sign = one.Elem(), "*"
	case one.Kind() == reflect.Slice:
		one, sign = one.Elem(), "[]"
	case one.Kind() == reflect.Map:
		one, sign = one.Elem(), "{}"
	case name != "." && !strings.Contains(tag, ",omitempty") && !strings.Contains(tag, ",omitzero"):
		sign = "!"
	}
	value, err := valueType(messages, one)
	return name + " " + sign + value, err
}

// Whether protobuf has a message of its own for a type.
func isMessage(one reflect.Type) bool {
	_, ok := reflect.PointerTo(one).MethodByName("Unmarshal")
	return ok
}

func valueType(messages map[string]string, value reflect.Type) (string, error) {
	if name, ok := special[value]; ok {
		return name, nil
	}
	if value == reflect.TypeOf([]byte{}) {
		return "bytes", nil
	}
	switch value.Kind() {
	case reflect.String:
		return "text", nil
	case reflect.Bool:
		return "bool", nil
	case reflect.Int32, reflect.Int64:
		return "int", nil
	case reflect.Struct:
		return messageName(value), addMessage(messages, value)
	case reflect.Slice:
		// A message with one field, which has the number 1.
		if isMessage(value) && value.Elem().Kind() == reflect.String {
			return "texts", nil
		}
	}
	return "", fmt.Errorf("%s has no name in the table of fields", value)
}

type codec struct {
	json  *serializerjson.Serializer
	proto *protobuf.Serializer
}

type question struct {
	Protobuf []byte
	Frame    []byte
	Object   json.RawMessage
}

type answer struct {
	// What was read, in JSON.
	Object json.RawMessage `json:"object,omitempty"`
	// Whether Kubernetes writes what was read in the same bytes.
	Same bool `json:"same"`
	// What was written.
	Protobuf []byte `json:"protobuf,omitempty"`
	Error    string `json:"error,omitempty"`
}

func convert(in io.Reader, out io.Writer) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		meta.AddMetaToScheme, discoverydocs.AddToScheme, apps.AddToScheme, authentication.AddToScheme,
		authorization.AddToScheme, autoscaling.AddToScheme, coordination.AddToScheme, core.AddToScheme,
		discovery.AddToScheme, events.AddToScheme, networking.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	strict := serializerjson.SerializerOptions{Strict: true}
	codec := codec{
		json:  serializerjson.NewSerializerWithOptions(serializerjson.DefaultMetaFactory, scheme, scheme, strict),
		proto: protobuf.NewSerializer(scheme, scheme),
	}
	questions, writer := json.NewDecoder(in), bufio.NewWriter(out)
	for {
		var asked question
		if err := questions.Decode(&asked); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		said, err := codec.answer(asked)
		if err != nil {
			said = answer{Error: err.Error()}
		}
		line, err := json.Marshal(said)
		if err != nil {
			return err
		}
		if _, err := writer.Write(append(line, '\n')); err != nil {
			return err
		}
		if err := writer.Flush(); err != nil {
			return err
		}
	}
}

func (c codec) answer(asked question) (answer, error) {
	switch {
	case asked.Protobuf != nil:
		return c.read(asked.Protobuf)
	case asked.Frame != nil:
		return c.readFrame(asked.Frame)
	default:
		object, _, err := c.json.Decode(asked.Object, nil, nil)
		if err != nil {
			return answer{}, err
		}
		written := bytes.Buffer{}
		err = c.proto.Encode(object, &written)
		return answer{Protobuf: written.Bytes()}, err
	}
}

func (c codec) read(data []byte) (answer, error) {
	// A few documents name no version.
	object, _, err := c.proto.Decode(data, &schema.GroupVersionKind{Version: "v1"}, nil)
	if err != nil {
		return answer{}, err
	}
	envelope := runtime.Unknown{}
	if _, _, err := c.proto.Decode(data, nil, &envelope); err != nil {
		return answer{}, err
	}
	again := bytes.Buffer{}
	object.GetObjectKind().SetGroupVersionKind(envelope.GroupVersionKind())
	if err := c.proto.Encode(object, &again); err != nil {
		return answer{}, err
	}
	shown, err := json.Marshal(object)
	return answer{Object: shown, Same: bytes.Equal(data, again.Bytes())}, err
}

// A frame of a watch, without its length.
func (c codec) readFrame(data []byte) (answer, error) {
	event := meta.WatchEvent{}
	if err := event.Unmarshal(data); err != nil {
		return answer{}, err
	}
	again, err := event.Marshal()
	if err != nil {
		return answer{}, err
	}
	inner, err := c.read(event.Object.Raw)
	if err != nil {
		return answer{}, err
	}
	shown, err := json.Marshal(map[string]any{"type": event.Type, "object": inner.Object})
	return answer{Object: shown, Same: inner.Same && bytes.Equal(data, again)}, err
}
