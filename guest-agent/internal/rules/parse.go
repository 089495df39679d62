// SPDX-License-Identifier: GPL-2.0-or-later

// Package rules reads the rules file and decides which processes it marks. It is pure: text and facts come in, decisions
// and errors with line numbers go out.
package rules

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxBytes bounds the file; a rules file is written by people.
const maxBytes = 1 << 20

// yamlLine is how the library begins its messages; ours begin with file and line.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+:))?`)

// Rule marks the processes that fulfil all of its conditions; within a condition, one pattern is enough.
type Rule struct {
	Name string
	// Line is where it begins in the file.
	Line        int
	Executables []string
	Units       []string
	Cgroups     []string
	Users       []string
	// UIDs are the numbers of Users.
	UIDs []uint32
}

// UserID finds the number of a user.
type UserID func(name string) (uint32, error)

// parser collects all problems of a file, so that a person has to look only once.
type parser struct {
	file     string
	userID   UserID
	problems []error
}

func (p *parser) problem(line int, format string, values ...any) {
	p.problems = append(p.problems, fmt.Errorf("%s:%d: %s", p.file, line, fmt.Sprintf(format, values...)))
}

// Parse reads a rules file; `file` is its name in messages. Errors name file, line, value and remedy, all of them at once.
func Parse(file string, data []byte, userID UserID) ([]Rule, error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s has %d bytes: at most %d", file, len(data), maxBytes)
	}
	if line := tabIn(string(data)); line > 0 {
		return nil, fmt.Errorf("%s:%d: a tab stands in the indentation: YAML wants blanks", file, line)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("%s:%s", file, yamlLine.ReplaceAllString(err.Error(), "$1"))
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	p := &parser{file: file, userID: userID}
	result := p.top(document.Content[0])
	if len(p.problems) > 0 {
		return nil, errors.Join(p.problems...)
	}
	return result, nil
}

// tabIn is the number of the first line that is indented by a tab, 0 if there is none; the library names the one before.
func tabIn(text string) int {
	for number, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "\t") {
			return number + 1
		}
	}
	return 0
}

func (p *parser) top(node *yaml.Node) (result []Rule) {
	for _, pair := range p.pairs(node, "the file") {
		switch {
		case pair.key.Value != "rules":
			p.problem(pair.key.Line, "%q is unknown here: the file has one key, rules", pair.key.Value)
		case pair.value.Kind != yaml.SequenceNode && pair.value.Tag != "!!null":
			p.problem(pair.value.Line, "rules must be a list: begin each rule with a dash")
		default:
			for _, each := range pair.value.Content {
				result = append(result, p.rule(each))
			}
		}
	}
	p.uniqueNames(result)
	return result
}

type pair struct{ key, value *yaml.Node }

// pairs are keys and values of a mapping, each key once.
func (p *parser) pairs(node *yaml.Node, what string) (result []pair) {
	if node.Kind != yaml.MappingNode {
		p.problem(node.Line, "%s must be a mapping, such as \"executable: /usr/bin/restic\"", what)
		return nil
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if seen[key.Value] {
			p.problem(key.Line, "%s is there twice: write a list, [a, b]", key.Value)
		}
		seen[key.Value] = true
		result = append(result, pair{key, node.Content[i+1]})
	}
	return result
}

func (p *parser) rule(node *yaml.Node) Rule {
	rule := Rule{Line: node.Line, Name: fmt.Sprintf("line %d", node.Line)}
	before := len(p.problems)
	for _, pair := range p.pairs(node, "a rule") {
		switch pair.key.Value {
		case "name":
			if words := p.words(pair); len(words) > 0 {
				rule.Name = words[0]
			}
		case "executable":
			rule.Executables = p.patterns(pair, "/")
		case "unit":
			rule.Units = p.patterns(pair, "")
		case "cgroup":
			rule.Cgroups = p.patterns(pair, "/")
		case "user":
			rule.Users = p.words(pair)
			rule.UIDs = p.users(pair.key.Line, rule.Users)
		default:
			p.problem(pair.key.Line, "%q is unknown in a rule: use name, executable, user, unit, cgroup", pair.key.Value)
		}
	}
	none := len(rule.Executables)+len(rule.Units)+len(rule.Cgroups)+len(rule.Users) == 0
	if none && len(p.problems) == before {
		p.problem(node.Line, "rule %s has no condition, so it would mark everything: add executable, user, unit or cgroup", rule.Name)
	}
	return rule
}

// words are the texts of a value: one, or a list of them.
func (p *parser) words(pair pair) (words []string) {
	nodes := []*yaml.Node{pair.value}
	if pair.value.Kind == yaml.SequenceNode {
		nodes = pair.value.Content
	}
	for _, node := range nodes {
		if node.Kind != yaml.ScalarNode || node.Value == "" || node.Tag == "!!null" {
			p.problem(node.Line, "%s must be a text or a list of texts, and not empty", pair.key.Value)
			continue
		}
		words = append(words, node.Value)
	}
	if len(nodes) == 0 {
		p.problem(pair.value.Line, "%s is an empty list: nothing would match", pair.key.Value)
	}
	return words
}

// patterns are words with *, ? and [a-z]; `start` is what each must begin with.
func (p *parser) patterns(pair pair, start string) []string {
	words := p.words(pair)
	for _, word := range words {
		if _, err := path.Match(word, ""); err != nil {
			p.problem(pair.value.Line, "%s %q is no pattern: a [ without ], or a \\ at the end", pair.key.Value, word)
		}
		if !strings.HasPrefix(word, start) {
			p.problem(pair.value.Line, "%s %q must be a whole path: begin it with /", pair.key.Value, word)
		}
	}
	return words
}

func (p *parser) users(line int, names []string) (ids []uint32) {
	for _, name := range names {
		id, err := p.userID(name)
		if err != nil {
			p.problem(line, "user: %v", err)
			continue
		}
		ids = append(ids, id)
	}
	return ids
}

func (p *parser) uniqueNames(rules []Rule) {
	seen := map[string]int{}
	for _, rule := range rules {
		if line, found := seen[rule.Name]; found {
			p.problem(rule.Line, "rule %s: line %d has a rule of that name already", rule.Name, line)
		}
		seen[rule.Name] = rule.Line
	}
}
