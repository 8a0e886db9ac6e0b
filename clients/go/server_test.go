package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

// request sends a request to the API, and returns the status code of the response.
func request(t *testing.T, server *Server, method, path, body string) int {
	t.Helper()
	request, err := http.NewRequest(method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := server.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func must[A any](t *testing.T) func(A, error) A {
	return func(answer A, err error) A {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
}

func TestServerIsReadyAndLeavesNothingBehind(t *testing.T) {
	began := time.Now()
	server := must[*Server](t)(New(Settings{}))
	t.Logf("ready after %v", time.Since(began))
	if code := request(t, server, http.MethodPost, configMaps, `{"metadata":{"name":"a"}}`); code != http.StatusCreated {
		t.Fatal(code)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(server.Directory); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestFeatures(t *testing.T) {
	ctx := context.Background()
	server := Start(t)
	mark := must[uint64](t)(server.Mark(ctx))
	creates := Match{Verbs: []string{"create"}, Resources: []string{"configmaps"}, Namespaces: []string{"default"}}
	must[uint64](t)(server.AddFault(ctx, Fault{Match: creates, Count: 1, Error: &Error{Code: 429, RetryAfterSeconds: 1}}))
	for _, want := range []int{429, 201} {
		if code := request(t, server, http.MethodPost, configMaps, `{"metadata":{"name":"a"}}`); code != want {
			t.Fatal(code)
		}
	}
	if err := server.ClearFaults(ctx); err != nil {
		t.Fatal(err)
	}
	found := must[[]Request](t)(server.RequestsSince(ctx, mark))
	var codes []int
	for _, item := range found {
		if item.Verb == "create" && item.Resource == "configmaps" && item.Namespace == "default" {
			codes = append(codes, item.Code)
			if !json.Valid(item.Body) && item.Code == 201 {
				t.Fatal(string(item.Body))
			}
		}
	}
	if len(codes) != 2 || codes[0] != 429 || codes[1] != 201 {
		t.Fatal(codes)
	}

	to := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	must[Clock](t)(server.SetTime(ctx, to))
	must[Clock](t)(server.Freeze(ctx, true))
	if clock := must[Clock](t)(server.Advance(ctx, time.Minute)); clock.Time.Sub(to) < time.Minute || !clock.Frozen {
		t.Fatal(clock)
	}
	must[Clock](t)(server.ResetClock(ctx))

	if err := server.Save(ctx, "clean"); err != nil {
		t.Fatal(err)
	}
	request(t, server, http.MethodDelete, configMaps+"/a", "")
	if writes := must[int](t)(server.Restore(ctx, "clean")); writes < 1 {
		t.Fatal(writes)
	}
	if code := request(t, server, http.MethodGet, configMaps+"/a", ""); code != 200 {
		t.Fatal(code)
	}
	must[string](t)(server.Quiesce(ctx, 50*time.Millisecond, 10*time.Second))
	must[int](t)(server.DisturbWatches(ctx, Match{Names: []string{"absent"}}, "stall"))
	var refused *RefusedError
	if _, err := server.Restore(ctx, "unknown"); !errors.As(err, &refused) || refused.Code != 404 {
		t.Fatal(err)
	}
}

func TestAFailedStartSaysWhy(t *testing.T) {
	if _, err := New(Settings{Flags: []string{"--no-such-flag"}}); err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Fatal(err)
	}
	if _, err := New(Settings{Program: "/absent/cluster-apiserver"}); err == nil || !strings.Contains(err.Error(), "CLUSTER_APISERVER") {
		t.Fatal(err)
	}
}
