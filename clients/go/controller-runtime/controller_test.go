// Package controllerruntime has tests of a controller that uses controller-runtime. The tests run on a server of
// apitest.
package controllerruntime

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"example.com/cluster-apiserver/apitest"
)

// labeler is a controller that copies the value of each config map into a label, with a conditional update.
type labeler struct {
	client   client.Client
	attempts atomic.Int64
}

func (l *labeler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var object corev1.ConfigMap
	if err := l.client.Get(ctx, request.NamespacedName, &object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	value, wanted := object.Data["value"]
	if !wanted || object.Labels["value"] == value {
		return ctrl.Result{}, nil
	}
	l.attempts.Add(1)
	if object.Labels == nil {
		object.Labels = map[string]string{}
	}
	object.Labels["value"] = value
	return ctrl.Result{}, l.client.Update(ctx, &object)
}

func config(t *testing.T, server *apitest.Server) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	check(t, err)
	config.QPS, config.Burst = 1000, 2000
	return config
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatal(what)
		}
	}
}

// start starts a manager with the labeler. It returns a client that reads from the server, and the cache of the
// manager.
func start(t *testing.T, server_ *apitest.Server) (*labeler, client.Client, cache.Cache) {
	t.Helper()
	log.SetLogger(logr.Discard())
	manager, err := ctrl.NewManager(config(t, server_), ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
	})
	check(t, err)
	// Each test starts a controller with the same name in this process, so skip the check that names are unique.
	skip := true
	work := &labeler{client: manager.GetClient()}
	check(t, ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).WithOptions(controller.Options{SkipNameValidation: &skip}).Complete(work))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	direct, err := client.New(config(t, server_), client.Options{})
	check(t, err)
	if !manager.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache does not synchronize")
	}
	return work, direct, manager.GetCache()
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"value": value},
	}
}

func label(ctx context.Context, from client.Reader, name string) string {
	var object corev1.ConfigMap
	if err := from.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &object); err != nil {
		return ""
	}
	return object.Labels["value"]
}

func TestRetryAfterConflicts(t *testing.T) {
	ctx, apiserver := context.Background(), apitest.Start(t)
	work, direct, _ := start(t, apiserver)
	updates := apitest.Match{Verbs: []string{"update"}, Resources: []string{"configmaps"}, Names: []string{"web"}}
	_, err := apiserver.AddFault(ctx, apitest.Fault{Match: updates, Count: 3, Error: &apitest.Error{Code: 409}})
	check(t, err)
	mark, err := apiserver.Mark(ctx)
	check(t, err)
	check(t, direct.Create(ctx, configMap("web", "7")))
	eventually(t, "no label", func() bool { return label(ctx, direct, "web") == "7" })
	_, err = apiserver.Quiesce(ctx, 50*time.Millisecond, 10*time.Second)
	check(t, err)
	record, err := apiserver.RequestsSince(ctx, mark)
	check(t, err)
	var codes []string
	for _, request := range record {
		if request.Verb == "update" && request.Name == "web" {
			codes = append(codes, strconv.Itoa(request.Code))
		}
	}
	if got := strings.Join(codes, " "); got != "409 409 409 200" || work.attempts.Load() < 4 {
		t.Fatal(got, work.attempts.Load())
	}
}

func TestInformerSurvivesAStalledWatchAndAnExpiredRevision(t *testing.T) {
	ctx, apiserver := context.Background(), apitest.Start(t)
	_, direct, informers := start(t, apiserver)
	check(t, direct.Create(ctx, configMap("a", "1")))
	eventually(t, "the cache has no object", func() bool { return label(ctx, informers, "a") == "1" })
	match := apitest.Match{Resources: []string{"configmaps"}}
	stalled, err := apiserver.DisturbWatches(ctx, match, "stall")
	check(t, err)
	if stalled < 1 {
		t.Fatal("no watch is stalled")
	}
	check(t, direct.Create(ctx, configMap("b", "1")))
	time.Sleep(200 * time.Millisecond)
	if label(ctx, informers, "b") != "" {
		t.Fatal("a stalled watch delivers an object")
	}
	_, err = apiserver.DisturbWatches(ctx, match, "resume")
	check(t, err)
	eventually(t, "the cache does not catch up", func() bool { return label(ctx, informers, "b") == "1" })
	_, err = apiserver.DisturbWatches(ctx, match, "expire")
	check(t, err)
	check(t, direct.Create(ctx, configMap("c", "1")))
	eventually(t, "the cache does not go on", func() bool { return label(ctx, informers, "c") == "1" })
}

func TestEventsExpireByTheClock(t *testing.T) {
	ctx, apiserver := context.Background(), apitest.Start(t)
	_, direct, _ := start(t, apiserver)
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, Reason: "Tested"}
	event.InvolvedObject.Namespace = "default"
	check(t, direct.Create(ctx, event))
	_, err := apiserver.Advance(ctx, 61*time.Minute)
	check(t, err)
	eventually(t, "the event does not expire", func() bool {
		return apierrors.IsNotFound(direct.Get(ctx, client.ObjectKeyFromObject(event), event))
	})
}

func TestAThousandRestorationsWithAManager(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	ctx, apiserver := context.Background(), apitest.Start(t)
	_, direct, informers := start(t, apiserver)
	check(t, direct.Create(ctx, configMap("kept", "1")))
	eventually(t, "no label", func() bool { return label(ctx, direct, "kept") == "1" })
	_, err := apiserver.Quiesce(ctx, 50*time.Millisecond, 10*time.Second)
	check(t, err)
	check(t, apiserver.Save(ctx, "clean"))
	var before int
	var took time.Duration
	for round := range rounds {
		if round == rounds/5 {
			before = anonymousKiB(t, apiserver.Pid())
		}
		check(t, direct.Create(ctx, configMap(fmt.Sprintf("new-%d", round), "1")))
		began := time.Now()
		_, err := apiserver.Restore(ctx, "clean")
		check(t, err)
		took += time.Since(began)
	}
	eventually(t, "the cache does not have the saved state", func() bool {
		var list corev1.ConfigMapList
		if informers.List(ctx, &list, client.InNamespace("default"), client.HasLabels{"value"}) != nil {
			return false
		}
		return len(list.Items) == 1 && list.Items[0].Name == "kept"
	})
	grown := anonymousKiB(t, apiserver.Pid()) - before
	t.Logf("%d restorations, %v each, memory grew by %d KiB after the first fifth", rounds, took/time.Duration(rounds), grown)
	if grown > 16<<10 {
		t.Fatalf("memory grew by %d KiB", grown)
	}
}

func anonymousKiB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(t, err)
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.Atoi(number)
	check(t, err)
	return kib
}
